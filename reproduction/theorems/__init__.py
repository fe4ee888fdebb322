"""Theorems of the papers as functions: as printed, what is proved instead, and how loose it is against simulation.

One file for each paper. A statement that the papers leave as O(…) is returned with constant 1 (`printed_…`); beside it
stands a bound with all constants, or the exact value for a family of problems, with its proof. `python -m
reproduction.theorems` measures both and writes docs/papers/theorems.md.
"""
