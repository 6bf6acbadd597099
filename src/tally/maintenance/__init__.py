"""Upkeep of the ledger: an operator's decisions, and pruning."""
