"""The configuration: its keys, their validation and where values come from.

May import line formats and the model; never a client of a server.
"""
