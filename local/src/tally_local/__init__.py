"""Tally's local stack and demonstration: real servers for a checkout, never for production.

Imports ``tally``; ``tally`` knows of it only by the entry point that ``local/pyproject.toml``
declares.
"""
