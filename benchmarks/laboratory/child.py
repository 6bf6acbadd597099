"""The process of one method: it may be killed, and is then started again.

Usage: ``python -m benchmarks.laboratory.child METHOD CONFIG PIPELINE TOPIC``, with the environment
that the supervisor gives it.
"""

import os
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.laboratory.bench import Bench
from benchmarks.laboratory.faults import FAULT, FOLDER, OF_COPIES, Fault, begin_driver, folder
from benchmarks.laboratory.methods import METHODS
from benchmarks.peers.store import Store
from benchmarks.servers import mysql_login
from tally.config.loading import load_settings
from tally.config.servers import SparkSettings
from tally.spark.session import spark_session

ON_CLUSTER: Final = "LAB_ON_CLUSTER"
"""The environment variable that says whether tasks run on the cluster of the configuration."""
OF_EXECUTORS: Final = (FAULT, FOLDER, "PYTHONPATH", "PYSPARK_PYTHON")
"""Environment variables that executors need, too."""
SPECULATION: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.efficiency.enabled": "false",
}
"""A copy is started of a task that takes a second, once others have ended."""


def main(name: str, config: Path, pipeline: str, topic: str) -> None:
    """Process all lines of the topic."""
    method = METHODS[name]
    settings = load_settings(config)
    begin_driver()
    with spark_session(_spark(settings.spark), "laboratory") as session:
        session.sparkContext.setLogLevel("ERROR")
        bench = Bench(
            spark=session,
            config=config,
            pipeline=pipeline,
            topic=topic,
            store=Store(mysql_login(settings.mysql), "lab"),
        )
        began = time.monotonic()
        method.process_all(bench)
        (folder() / "seconds").write_text(str(time.monotonic() - began), encoding="ascii")


def _spark(spark: SparkSettings) -> SparkSettings:
    """Tasks on two cores, of this machine or of a cluster; one that is killed is run again."""
    if not os.environ.get(ON_CLUSTER):
        return spark.model_copy(update={"master": "local[2,4]"})
    conf = {f"spark.executorEnv.{name}": os.environ[name] for name in OF_EXECUTORS}
    if Fault(os.environ[FAULT]) in OF_COPIES:
        conf |= SPECULATION
    return spark.model_copy(update={"conf": {**spark.conf, **conf}})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
