"""Decisions about lost records, and about topics that were created again."""
