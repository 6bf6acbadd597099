"""Kafka: the one package that imports confluent_kafka.

May import the configuration and the model. Reads no records: Spark does.
"""
