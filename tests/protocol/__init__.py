"""The protocol of docs/exactly-once.md as a model, and what checks real runs against it."""
