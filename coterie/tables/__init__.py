"""The tables of a plan, each with its keys, their ranges and what they mean together."""
