"""Spark: the one package that imports PySpark; sessions, reading from Kafka, counting.

May import the configuration, line formats and the model; never the ledger.
"""
