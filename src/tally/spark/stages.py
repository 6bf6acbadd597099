"""Columns that are computed before others, once for each record."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)


class Stages:
    """Columns that are used many times.

    Spark shares equal expressions only where each is certain to be evaluated, and it compiles a
    plan only up to some size; beyond that it evaluates each use by itself. A large expression that
    stands many times in one that stands many times is then evaluated hundreds of times for each
    record. What is added here becomes a column of a projection of its own, which Spark does not
    join with the next one as long as it is used more than once.
    """

    def __init__(self) -> None:
        self._columns: list[Column] = []

    def add(self, column: Column) -> Column:
        """Compute a column beforehand; it may use those that were added before.

        Returns:
            The column as it is named in the frame of ``applied``.
        """
        name = f"tally_stage_{len(self._columns)}"
        self._columns.append(column.alias(name))
        return F.col(name)

    def applied(self, frame: DataFrame) -> DataFrame:
        """The frame with the added columns besides its own."""
        for column in self._columns:
            frame = frame.select("*", column)
        return frame
