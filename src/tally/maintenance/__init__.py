"""Upkeep of the ledger: pruning, and abandoning what was planned."""
