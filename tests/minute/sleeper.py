"""A worker in a process of its own that has read its batch and is stopped before it commits.

Usage: ``python -m tests.minute.sleeper BATCH OUTCOME``. It stops itself by SIGSTOP; after SIGCONT
it writes the outcome of its commit into the file ``OUTCOME``.
"""

import os
import signal
import sys
from pathlib import Path

from tally.app.context import open_context
from tally.config.loading import load_settings
from tally.errors import FencedError
from tally.ledger import batches
from tally.pipeline.commit import commit_once
from tests.minute.test_commit import result


def main() -> None:
    """Claim, sleep, commit."""
    ctx = open_context(load_settings())
    batch_id, outcome = int(sys.argv[1]), Path(sys.argv[2])
    batch = ctx.database.run(lambda tx: batches.claim(tx, batch_id, "a sleeper"))
    found = result(batch)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        committed = commit_once(ctx, batch, ctx.settings.pipeline(batch.pipeline), found)
        ended = "committed" if committed else "found it done"
    except FencedError:
        ended = "fenced"
    outcome.write_text(ended, encoding="utf-8")


if __name__ == "__main__":
    main()
