"""The ledger: every statement that reads or writes Tally's tables.

Functions take an open :class:`tally.mysql.transactions.Transaction` and never commit; the caller
decides what one transaction contains. ``sql/`` defines the tables.
"""
