"""Fakes of the ports that the steps use, for tests of Tally and of code built on it.

May import every room but the edges; nothing else of Tally imports it.
"""
