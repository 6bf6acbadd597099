"""The audit: whether the ledger, the result and Kafka agree."""
