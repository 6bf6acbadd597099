"""MySQL: the one package that imports PyMySQL; connections, transactions, errors, migrations.

May import the configuration and the model. It knows none of Tally's tables.
"""
