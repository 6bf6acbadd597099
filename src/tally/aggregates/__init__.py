"""Aggregates: what is counted, described once. Pure.

May import the configuration, the model and errors; never a client of a server.
"""
