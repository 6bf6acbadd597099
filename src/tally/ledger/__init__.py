"""The ledger: every statement that reads or writes Tally's tables.

Functions take an open :class:`tally.mysql.Transaction` and never commit; who calls them decides
what belongs together. ``sql/`` defines the tables.
"""
