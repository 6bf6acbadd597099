"""Planning: which offsets a batch or a replay reads, and what blocks a partition. Pure.

May import the model, errors and the configuration; never a client of a server.
"""
