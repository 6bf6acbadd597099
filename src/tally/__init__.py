"""Tally counts the error lines of a log topic per minute, each line exactly once."""

__version__ = "0.1.0"
