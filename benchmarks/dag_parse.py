"""How long Airflow takes to parse Tally's DAG file, and whether that is within its budget.

Each parse happens in a Python of its own in which Airflow is imported already, as in the process
that Airflow forks for a file. Prints the median of several; exits 1 over budget::

    python benchmarks/dag_parse.py [--repeat 5] [--pipelines 1 20]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]

# Several times what two idle cores need (0.35 s and 0.03 s), twice what two busy ones do.
# Most of the first pipeline's time is the import of the Spark provider and of pydantic.
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
print(json.dumps({"dags": len(bag.dags), "parse_s": parsed - begun, "store_s": stored - parsed}))
"""


def measure(pipelines: int, home: Path) -> dict[str, float]:
    """One parse of the DAG file with this number of pipelines."""
    config = home / f"tally-{pipelines}.toml"
    config.write_text(
        "\n".join(f'[pipelines.p{n}]\ntopics = ["t{n}"]' for n in range(pipelines)),
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(CHECKOUT / "dags"), str(4 * pipelines)],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "TALLY_CONFIG": str(config),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> int:
    """Measure, print, and compare with the budget."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--pipelines", type=int, nargs="+", default=[1, 20])
    options = arguments.parse_args()
    over = False
    print(f"{'pipelines':>9} {'parse':>8} {'serialise':>10} {'budget':>8}   (medians, seconds)")
    with tempfile.TemporaryDirectory(prefix="tally-dag-parse-") as home:
        for pipelines in options.pipelines:
            runs = [measure(pipelines, Path(home)) for _ in range(options.repeat)]
            parse = statistics.median(run["parse_s"] for run in runs)
            store = statistics.median(run["store_s"] for run in runs)
            budget = BUDGET_FIRST_PIPELINE_S + BUDGET_FURTHER_PIPELINE_S * (pipelines - 1)
            over = over or parse > budget
            print(f"{pipelines:>9} {parse:>8.3f} {store:>10.3f} {budget:>8.2f}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
