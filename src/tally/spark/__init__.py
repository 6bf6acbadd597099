"""Spark: sessions, reading from Kafka, counting. The only package that imports PySpark."""
