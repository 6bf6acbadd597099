"""How long Airflow takes to parse Tally's DAG file, and whether that is within its budget.

Usage: ``.tally/venv/bin/python -m benchmarks.dag_parse [--rounds 5] [--pipelines 1 20]``

Each parse happens in a Python of its own in which Airflow is imported already, as in the process
that Airflow forks for a file. Prints medians; ends with an error if one is over its budget.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.page import Table, command
from benchmarks.servers import PROJECT

# Several times what two idle cores need (0.35 s and 0.03 s), twice what two busy ones do.
# Most of the first pipeline's time is imports, above all of pydantic.
BUDGET_FIRST_PIPELINE_S = 2.0
BUDGET_FURTHER_PIPELINE_S = 0.1

PARSE = """
import json, sys, time
import airflow.sdk, airflow.serialization.serialized_objects
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
begun = time.perf_counter()
bag = DagBag(dag_folder=sys.argv[1])
parsed = time.perf_counter()
for dag in bag.dags.values():
    DagSerialization.to_dict(dag)
stored = time.perf_counter()
assert not bag.import_errors, bag.import_errors
assert len(bag.dags) == int(sys.argv[2]), bag.dags
print(json.dumps([parsed - begun, stored - parsed]))
"""


def measure(rounds: int = 5, pipelines: tuple[int, ...] = (1, 20)) -> Iterator[Table]:
    """Parse the DAG file with each of these numbers of pipelines.

    Raises:
        RuntimeError: It took longer than its budget.
    """
    rows, over = [], False
    with TemporaryDirectory(prefix="tally-dag-parse-") as home:
        for number in pipelines:
            runs = [_parse(number, Path(home)) for _ in range(rounds)]
            parse, store = (statistics.median(seconds) for seconds in zip(*runs, strict=True))
            budget = BUDGET_FIRST_PIPELINE_S + BUDGET_FURTHER_PIPELINE_S * (number - 1)
            over = over or parse > budget
            rows.append([f"{number}", f"{parse:.2f}", f"{store:.2f}", f"{budget:.2f}"])
    yield Table(headers=["pipelines", "parse, s", "serialise, s", "budget, s"], rows=rows)
    if over:
        raise RuntimeError("a parse took longer than its budget")


def _parse(pipelines: int, home: Path) -> list[float]:
    """One parse of the DAG file; the seconds to parse and to serialise."""
    config = home / f"tally-{pipelines}.toml"
    config.write_text(
        "\n".join(f'[pipelines.p{n}]\ntopics = ["t{n}"]' for n in range(pipelines)),
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(PROJECT / "dags"), str(4 * pipelines)],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "TALLY_CONFIG": str(config),
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


if __name__ == "__main__":
    sys.exit(command(measure))
