"""Deliveries, also called sinks: how results become visible exactly once.

May import the ledger and aggregates; never Spark, Kafka or a step of the pipeline.
"""
