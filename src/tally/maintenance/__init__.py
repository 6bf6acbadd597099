"""Upkeep of the ledger: migrating, pruning, abandoning what was planned."""
