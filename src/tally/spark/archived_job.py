"""The job whose classes :mod:`tally.spark.class_archive` keeps, as spark-submit runs it.

It does what a driver does for each batch, on two lines and without Kafka.
"""

import sys
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from tally.config.servers import SparkSettings
from tally.lines.format import CATALOGUE
from tally.spark.line_columns import Selection, parse_line
from tally.spark.session import spark_session


def main() -> None:
    """Find time, level and label, group and collect; one format of each kind."""
    settings = SparkSettings(master="local[1]", jars_dir=Path(sys.argv[1]))
    with spark_session(settings, "classes") as session:
        for name in ("fixed", "log4j", "json"):
            line_format = CATALOGUE[name]
            values = [(bytearray(line_format.example.encode()), 0, 0), (bytearray(b"x"), 0, 1)]
            records = session.createDataFrame(values, "value binary, partition int, offset long")
            selection = Selection(labels=["level"])
            line = parse_line(F.col("value"), line_format, ["ERROR"], selection=selection)
            lines = line.stages.applied(records).select(
                "partition",
                "offset",
                line.malformed_reason.alias("reason"),
                line.minute.alias("minute"),
                line.labels[0].alias("level"),
            )
            malformed = F.col("reason").isNotNull()
            counted = lines.groupBy("partition", "minute", "level").agg(
                F.count("*"), F.count("reason"), F.count_if(malformed), F.min("offset")
            )
            for frame in (counted, lines.where(malformed)):
                list(frame.toLocalIterator())


if __name__ == "__main__":
    main()
