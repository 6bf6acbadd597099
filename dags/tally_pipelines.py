"""Counts the error lines of Kafka topics per minute, each line exactly once.

Four DAGs for each pipeline of `tally.toml`:

* **`<pipeline>`**, on the pipeline's schedule: `plan` fixes which offsets the batch reads and
  writes that into the ledger; `count` reads just those with Spark and commits counts and offsets
  in one MySQL transaction. Nothing new: `plan` says so, the rest is skipped, the run is green.
  `blocked` runs, and makes the run red, while Kafka and the ledger disagree on a partition; the
  other partitions are counted all the same.
* **`<pipeline>_replay`**, by hand: counts offsets, times, batches or minutes again.
* **`<pipeline>_losses`**, by hand: asks a person what is to become of lost records.
* **`<pipeline>_audit`**, daily: proves that the result table is the sum of what was counted.

Runs may be triggered, cleared, retried and killed at any time: what is counted stands in the
ledger, not in Airflow. A date means nothing to these DAGs, so Airflow refuses backfills over dates
("does not allow backfill runs"): `<pipeline>_replay` is what you are looking for.

If a run is red: read the error of its red task, it names the next command; `docs/runbook.md` has
an entry for each error code.
"""

import os
from pathlib import Path

from tally.airflow.factory import pipeline_dags
from tally.config.loading import CONFIG_NAME, CONFIG_VARIABLE

CHECKOUT = Path(__file__).parents[1]

globals().update(
    pipeline_dags(
        config=Path(os.environ.get(CONFIG_VARIABLE) or CHECKOUT / CONFIG_NAME).absolute(),
        job=CHECKOUT / "jobs" / "count_errors.py",
        doc_md=__doc__,
    )
)
