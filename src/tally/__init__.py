"""Tally counts the error lines of a log topic per minute, each line exactly once."""

__version__ = "0.18.1"
"""The minor version is the number of the newest migration in ``sql/``."""
