"""Kafka: the one package that imports confluent_kafka.

Reads no records to count: Spark does.
"""
