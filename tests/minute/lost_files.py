"""A count in a process of its own that loses Spark's shuffle files while it fetches the result.

Usage: ``python -m tests.minute.lost_files BATCH``. It prints whether the batch was committed, and
how many stages were computed again. Spark then gives up its executor, which under a local master is
the driver: the heartbeats fail from there on, and Spark ends the JVM ten minutes later. So no other
test may use this one.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tally.app.context import open_context
from tally.config.loading import load_settings
from tally.model import OffsetRange
from tally.pipeline.run import run_batch
from tally.spark.counting import SparkReader
from tally.spark.reading import collect
from tally.spark.session import spark_session
from tests.minute.stages import Stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


def main() -> None:
    """Count the batch, and lose the files of its first stage."""
    settings = load_settings()
    joined = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}
    configured = settings.spark.model_copy(update={"conf": {**settings.spark.conf, **joined}})
    with spark_session(configured, "lost files") as session:

        def lose_after_the_first(
            rows: "DataFrame", ranges: Sequence[OffsetRange]
        ) -> "Iterator[Row]":
            found = collect(rows, ranges)
            yield next(found)
            lose_shuffle_files(session)
            yield from found

        reader = SparkReader(session=session, kafka=settings.kafka, fetch=lose_after_the_first)
        ctx = replace(open_context(settings), open_reader=lambda: nullcontext(reader))
        stages = Stages(session)
        committed = run_batch(ctx, int(sys.argv[1])).committed
        sys.stdout.write(f"{committed} {stages.computed_again()}\n")


def lose_shuffle_files(session: "SparkSession") -> None:
    """Delete the results of finished tasks, as a lost disk does."""
    environment = session._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    folders = [Path(f.getPath()) for f in environment.blockManager().diskBlockManager().localDirs()]
    files = [file for folder in folders for file in folder.rglob("shuffle_*")]
    assert files
    for file in files:
        file.unlink()


if __name__ == "__main__":
    main()
