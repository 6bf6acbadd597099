"""The demonstration: realistic lines, counted by the real DAG and checked at the end."""
