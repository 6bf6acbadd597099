"""The process of one method: it may be killed, and is then started again.

Usage: ``python -m benchmarks.laboratory.child METHOD CONFIG PIPELINE TOPIC``, with the environment
that the supervisor gives it.
"""

import sys
from pathlib import Path

from benchmarks.laboratory.bench import Bench
from benchmarks.laboratory.faults import begin_driver
from benchmarks.laboratory.methods import METHODS
from benchmarks.laboratory.store import Store
from benchmarks.servers import mysql_login
from tally.config.loading import load_settings
from tally.spark.session import spark_session


def main(name: str, config: Path, pipeline: str, topic: str) -> None:
    """Process all lines of the topic."""
    method = METHODS[name]
    settings = load_settings(config)
    begin_driver()
    # A task that is killed is run again, as on a cluster.
    spark = settings.spark.model_copy(update={"master": "local[2,4]"})
    with spark_session(spark, "laboratory") as session:
        session.sparkContext.setLogLevel("ERROR")
        method.process_all(
            Bench(
                spark=session,
                config=config,
                pipeline=pipeline,
                topic=topic,
                store=Store(mysql_login(settings.mysql)),
            )
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
