"""Who owns the loop: simulation of all agents at once, its memory layout, and the references."""
