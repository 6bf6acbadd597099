"""Tally's local stack and demonstration: real servers for a checkout, never for production.

Imports ``tally``; ``tally`` finds it only through the entry point in ``local/pyproject.toml``.
"""
