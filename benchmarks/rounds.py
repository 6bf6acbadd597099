"""Tally's count of all that a topic holds, once for each round."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from benchmarks.contest import timed
from benchmarks.lines import Written
from benchmarks.servers import Bench
from tally.context import Context
from tally.ledger.results import lines_by_minute
from tally.ledger.tables import Tables


@dataclass(kw_only=True, slots=True)
class Rounds:
    """Each round is one of a pipeline that has counted nothing yet: ``name0``, then ``name1``."""

    servers: Bench
    """The servers."""
    spark: SparkSession
    """Where it is counted."""
    written: Written
    """What the topic holds, and so what must be counted."""
    name: str
    """What the pipelines' names begin with."""
    count: Callable[[Context, str], object]
    """Plans, counts and commits all that a pipeline has to count."""
    rounds: int = 0
    """How many there were."""

    def __call__(self) -> float:
        """The seconds of the next round.

        Raises:
            RuntimeError: Something else was counted than was written.
        """
        name = f"{self.name}{self.rounds}"
        self.rounds += 1
        ctx = self.servers.context(self.spark)
        took = timed(lambda: self.count(ctx, name))()
        with ctx.database.transaction(read_only=True) as tx:
            self.written.check(name, lines_by_minute(tx, Tables(result=name)))
        return took
