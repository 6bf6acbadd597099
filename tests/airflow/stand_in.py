"""A stand-in for spark-submit and the job: quick, and it can fail as a test wants.

It is told by ``STAND_IN`` what to do, separated by commas: ``commit`` commits the batches as the
job does, without Spark; ``report=PATH`` writes what it was given; ``sleep`` waits
to be killed; ``exit=CODE`` ends.
"""

import json
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from tally.config.loading import load_settings
from tally.config.settings import Settings
from tally.context import open_context
from tally.counting.run import run_batches
from tests.python_reader import PythonReader


def commit(settings: Settings, *batch_ids: int) -> None:
    reader = PythonReader(kafka=settings.kafka)
    ctx = replace(open_context(settings), open_reader=lambda: nullcontext(reader))
    list(run_batches(ctx, batch_ids))


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
    for order in os.environ["STAND_IN"].split(","):
        word, _, value = order.partition("=")
        match word:
            case "commit":
                commit(load_settings(), *map(int, sys.argv[-1].split(",")))
            case "report":
                report(Path(value))
            case "sleep":
                time.sleep(300)
            case "exit":
                sys.exit(int(value))


if __name__ == "__main__":
    main()
