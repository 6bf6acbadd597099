"""Spark: sessions, reading from Kafka, counting. The only package that imports PySpark.

May import the configuration, line formats and the model; never the ledger.
"""
