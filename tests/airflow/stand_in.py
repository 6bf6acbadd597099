"""A stand-in for spark-submit and the job: quick, and as well-behaved or not as a test wants.

It is told by ``STAND_IN`` what to do, separated by commas: ``commit`` claims the batch and commits
it as if every line were at another level; ``replay`` does so as the job does, with what was
overtaken planned anew; ``report=PATH`` writes what it was given; ``say=TEXT``
prints; ``sleep`` waits to be killed; ``exit=CODE`` ends.
"""

import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from tally.config.loading import load_settings
from tally.config.settings import Settings
from tally.deliveries.choice import delivery_of
from tally.deliveries.contract import Result
from tally.ledger.batches import claim, find_batch
from tally.model import BatchState, SegmentTotals
from tally.mysql.transactions import Database
from tally.pipeline.replay import run_replay_batch


def commit(settings: Settings, batch_id: int) -> None:
    """Commit the batch, with nothing counted."""
    with Database(settings=settings.mysql).transaction() as tx:
        batch = claim(tx, batch_id, "stand-in")
    totals = {
        segment.range.partition: SegmentTotals(
            records=segment.range.offsets,
            matched=0,
            unmatched=segment.range.offsets,
            malformed=0,
            first_offset=segment.range.from_offset,
            last_offset=segment.range.until_offset - 1,
        )
        for segment in batch.segments
    }
    nothing = Result(
        totals=totals, contributions=[], dead_letters=[], version="0", format_fingerprint="0"
    )
    with Database(settings=settings.mysql).transaction() as tx:
        delivery_of(settings.pipeline(batch.pipeline)).commit(tx, batch, nothing)


def replay(settings: Settings, batch_id: int) -> None:
    """Run the batch as the job does, without Spark."""

    def run_batch(_: Settings, number: int, __: object) -> None:
        with Database(settings=settings.mysql).transaction() as tx:
            state = find_batch(tx, number).state
        if state is not BatchState.COMMITTED:
            commit(settings, number)

    with patch("tally.pipeline.replay.run_batch", run_batch):
        run_replay_batch(settings, batch_id, lambda: nullcontext(None))  # type: ignore[arg-type, return-value]


def report(path: Path) -> None:
    """Write down the command line and the environment, and the secrets file's mode."""
    secrets = Path(os.environ["TALLY_SECRETS_FILE"])
    given = {
        "argv": sys.argv,
        "environment": dict(os.environ),
        "secrets_mode": secrets.stat().st_mode & 0o777,
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
                commit(load_settings(), batch_id)
            case "replay":
                replay(load_settings(), batch_id)
            case "report":
                report(Path(value))
            case "say":
                print(value, flush=True)  # noqa: T201 - it plays a program
            case "sleep":
                time.sleep(300)
            case "exit":
                sys.exit(int(value))


if __name__ == "__main__":
    main()
