"""Sums of all parties' vectors on any connected graph: opened once, with shared noise, whoever drops out."""
