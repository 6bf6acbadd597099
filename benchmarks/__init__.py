"""Benchmarks; each is a module to run with ``python -m benchmarks.<name>``."""
