"""MySQL: the one package that imports PyMySQL; connections, transactions, errors, migrations.

May import the configuration and the model. Knows no table of Tally's.
"""
