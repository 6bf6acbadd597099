"""The local stack itself, on real servers."""
