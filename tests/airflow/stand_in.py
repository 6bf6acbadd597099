"""A stand-in for spark-submit and the job: quick, and it can fail as a test wants.

It is told by ``STAND_IN`` what to do, separated by commas: ``commit`` claims the batch and commits
it as if every line were unmatched, ``commit=BATCH`` so with another one; ``malformed`` does so
as if every line were malformed; ``replay`` does so as the job does, with superseded batches
replanned; ``report=PATH`` writes what it was given; ``say=TEXT`` prints; ``sleep`` waits to be
killed; ``spark`` becomes the real spark-submit; ``exit=CODE`` ends.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pyspark

from tally.aggregates.counts import CountRequest, Counts
from tally.aggregates.spool import Spool
from tally.app.context import open_context
from tally.config.loading import load_settings
from tally.config.settings import Settings
from tally.deliveries.choice import delivery_of
from tally.deliveries.contract import Result
from tally.ledger.batches import claim
from tally.lines.format import MalformedReason
from tally.model import (
    Contribution,
    DeadLetter,
    OffsetRange,
    SegmentTotals,
    TopicPartition,
)
from tally.mysql.transactions import Database
from tally.pipeline.context import Context, Reader
from tally.pipeline.replay import run_or_replan


def nothing_counted(
    ranges: Sequence[OffsetRange], *, malformed: bool = False
) -> dict[TopicPartition, SegmentTotals]:
    """The totals of ranges in which every line is unmatched, or malformed."""
    return {
        r.partition: SegmentTotals(
            records=r.offsets,
            matched=0,
            unmatched=0 if malformed else r.offsets,
            malformed=r.offsets if malformed else 0,
            first_offset=r.from_offset,
            last_offset=r.until_offset - 1,
        )
        for r in ranges
    }


def dead_letters(ranges: Sequence[OffsetRange]) -> list[DeadLetter]:
    """One for each offset."""
    return [
        DeadLetter(
            partition=r.partition,
            offset=offset,
            reason=MalformedReason.EMPTY_VALUE.value,
            value=b"",
            value_bytes=0,
        )
        for r in ranges
        for offset in range(r.from_offset, r.until_offset)
    ]


def commit(settings: Settings, batch_id: int, *, malformed: bool = False) -> None:
    """Commit the batch, with nothing counted."""
    database = Database(settings=settings.mysql)
    with database.transaction() as tx:
        batch = claim(tx, batch_id, "stand-in")
    ranges = [segment.range for segment in batch.segments]
    nothing = Result(
        totals=nothing_counted(ranges, malformed=malformed),
        contributions=[],
        dead_letters=dead_letters(ranges) if malformed else [],
        version="0",
        format_fingerprint="0",
    )
    with database.transaction() as tx:
        delivery_of(settings.pipeline(batch.pipeline)).commit(tx, batch, nothing)


class StandInReader:
    """Reads nothing, and reports every line as unmatched."""

    @contextmanager
    def count(self, request: CountRequest) -> Iterator[Counts]:
        """The counts of the ranges."""
        with Spool[Contribution]() as contributions, Spool[DeadLetter]() as dead_letters:
            yield Counts(
                totals=nothing_counted(request.ranges),
                contributions=contributions,
                dead_letters=dead_letters,
            )


def context(settings: Settings) -> Context:
    """The servers that the settings name, and the stand-in instead of Spark."""

    def open_reader() -> AbstractContextManager[Reader]:
        return nullcontext(StandInReader())

    return replace(open_context(settings), open_reader=open_reader)


def replay(settings: Settings, batch_id: int) -> None:
    """Run the batch as the job does, without Spark."""
    run_or_replan(context(settings), [batch_id])


def report(path: Path) -> None:
    """Report the command line, the environment, the secrets file's mode and Spark's master."""
    secrets = Path(os.environ["TALLY_SECRETS_FILE"])
    given = {
        "argv": sys.argv,
        "environment": dict(os.environ),
        "secrets_mode": secrets.stat().st_mode & 0o777,
        "master": load_settings().spark.master,
        "pid": os.getpid(),
    }
    path.with_suffix(".part").write_text(json.dumps(given), encoding="utf-8")
    path.with_suffix(".part").rename(path)


def main() -> None:
    """Do what ``STAND_IN`` says."""
    batch_id = int(sys.argv[-1])
    for order in os.environ["STAND_IN"].split(","):
        word, _, value = order.partition("=")
        match word:
            case "commit":
                commit(load_settings(), int(value or batch_id))
            case "malformed":
                commit(load_settings(), batch_id, malformed=True)
            case "replay":
                replay(load_settings(), batch_id)
            case "report":
                report(Path(value))
            case "say":
                print(value, flush=True)  # noqa: T201 - it plays a program
            case "spark":
                # Tally names Spark's home only to this Python's spark-submit, which this is not.
                home = Path(pyspark.__file__).parent
                environment = {**os.environ, "SPARK_HOME": str(home)}
                os.execve(home / "bin" / "spark-submit", sys.argv, environment)  # noqa: S606
            case "sleep":
                time.sleep(300)
            case "exit":
                sys.exit(int(value))


if __name__ == "__main__":
    main()
