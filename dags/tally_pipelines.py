"""Counts the error lines of Kafka topics per minute, each line exactly once.

Four DAGs for each pipeline of `tally.toml`:

* **`<pipeline>`**, on the pipeline's schedule: `count` fixes which offsets the batch reads and
  writes that into the ledger, reads just those with Spark, and commits counts and offsets in one
  MySQL transaction. With nothing new it ends at once and the run is green. `blocked` runs, and
  makes the run red, while Kafka and the ledger disagree on a partition; the other partitions are
  counted all the same.
* **`<pipeline>_replay`**, by hand: reprocesses offsets, times, batches or minutes.
* **`<pipeline>_losses`**, by hand: asks an operator what to do about lost records.
* **`<pipeline>_audit`**, daily: proves that the result table is the sum of what was counted.

Runs may be triggered, cleared, retried and killed at any time: the ledger, not Airflow, records
what is counted. These DAGs ignore dates, so Airflow refuses backfills over dates ("does not allow
backfill runs"): use `<pipeline>_replay`.

If a run is red, read the error of its red task: it names the next command. `docs/runbook.md` has an
entry for each error code.
"""

import os
from pathlib import Path

from tally.airflow.factory import pipeline_dags
from tally.config.loading import CONFIG_NAME
from tally.config.variables import CONFIG_VARIABLE
from tally.packaged import JOB, folder_of

FOLDER = folder_of(__file__)

globals().update(
    pipeline_dags(
        config=Path(os.environ.get(CONFIG_VARIABLE) or FOLDER / CONFIG_NAME).absolute(),
        job=FOLDER / JOB,
        doc_md=__doc__,
    )
)
