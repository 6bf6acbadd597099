"""Fakes of what the steps are handed, for tests of Tally and of what is built on it.

May import every room but the edges; nothing else of Tally imports it.
"""
