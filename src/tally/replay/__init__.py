"""Replays: what is asked for, its preview, and running it batch after batch."""
