"""Counting a minute: plan, claim, read, check, commit."""
