"""MySQL: the one package that imports PyMySQL; connections, transactions, errors, migrations.

It knows none of Tally's tables.
"""
