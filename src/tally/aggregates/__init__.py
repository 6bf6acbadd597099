"""Aggregates: what is counted, described once, and the counts of one read with their checks.

Pure but for :mod:`~tally.aggregates.spool`, which moves many rows to a temporary file.
"""
