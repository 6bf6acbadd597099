"""The demonstration: realistic lines, counted by the real DAG and checked at the end."""

from tally_local.demo.show import run

__all__ = ["run"]
