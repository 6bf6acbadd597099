"""The steps of a pipeline: plan, run, replay, prune, audit, recount.

A step does one thing with Kafka, Spark and the ledger, and returns what it did; :mod:`tally.app`
composes steps and queries into the answer to one question. May import planning, the client packages
(kafka, mysql, spark), the ledger and deliveries; never ``app`` or an edge.
"""
