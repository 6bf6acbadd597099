"""The demonstration: realistic lines, counted each minute by the real DAG, checked at the end."""

from tally_local.demo.show import run

__all__ = ["run"]
