"""The job whose classes :mod:`tally.spark.class_archive` keeps, as spark-submit runs it.

It does what a driver does for each batch, on two lines and without Kafka.
"""

import sys
from pathlib import Path

from tally.config.pipeline import Pipeline
from tally.config.servers import SparkSettings
from tally.lines.parsing import CATALOGUE
from tally.spark.grouping import Grouping
from tally.spark.reading import collect
from tally.spark.session import spark_session


def main() -> None:
    """Find time, level and label, group and collect; one format of each kind."""
    settings = SparkSettings(master="local[1]", jars_dir=Path(sys.argv[1]))
    with spark_session(settings, "classes") as session:
        for name in ("fixed", "log4j", "json"):
            example = bytearray(CATALOGUE[name].example.encode())
            rows = [(example, 0), (bytearray(b"x"), 1)]
            records = session.createDataFrame(rows, "value binary, offset long").selectExpr(
                "*", "0 as partition", "cast(null as binary) as key", "now() as timestamp"
            )
            pipeline = Pipeline.model_validate(
                {"name": "classes", "topics": ["t"], "line_format": name, "labels": ["level"]}
            )
            grouping = Grouping.of(pipeline, {"t"})
            for frame in (grouping.counts(records), grouping.malformed(records, 100)):
                list(collect(frame, ()))


if __name__ == "__main__":
    main()
