"""Properties that hold after any sequence of events."""
