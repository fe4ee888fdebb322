"""Kinds of exchange, one file each, found and never listed.

A kind has `Settings`, the keys that it adds to [exchange]; `make(settings, size)`, an `Exchange` between so many
agents; and `statement(settings, size, claim, paid)`, what it promises. To read a plan loads no JAX: what needs it is
imported in the functions.
"""

from coterie.found import Kinds

__all__ = ["KINDS"]

KINDS = Kinds("exchange", __name__)
"""Every exchange, by name."""
