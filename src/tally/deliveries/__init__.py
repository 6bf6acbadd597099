"""Deliveries, also called sinks: how results become visible exactly once."""
