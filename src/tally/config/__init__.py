"""The configuration: its keys, their validation and where values come from."""
