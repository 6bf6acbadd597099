"""The command line, ``tally``.

One module per group of commands, loaded only when one of its commands runs; :mod:`tally.cli.tree`
says which command lies where.
"""

from tally.cli.tree import cli, main

__all__ = ["cli", "main"]
