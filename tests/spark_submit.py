"""The job as it is started by hand: the ``spark-submit`` command line and its environment."""

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tally.spark.java import with_archive
from tally_local.stack.stack import Stack

_SPEC: Final = importlib.util.find_spec("pyspark")
assert _SPEC is not None
SPARK_HOME: Final = Path(str(_SPEC.origin)).parent


def spark_environment(**variables: str) -> dict[str, str]:
    """The environment of this process, with what Spark's own programs ask for."""
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **variables,
    }


def job(
    stack: Stack,
    batch_id: int,
    *options: str,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line of the Spark entry point for a batch, with the stack's jars and checkout.

    Executors of another machine are sent the jars.
    """
    conf = dict(conf or {})
    if master.startswith("local["):
        jars = ["--driver-class-path", f"{stack.jars_dir}/*"]
        conf = with_archive(conf, stack.jars_dir)
    else:
        jars = ["--jars", ",".join(str(jar) for jar in stack.jars_dir.glob("*.jar"))]
    return [
        str(SPARK_HOME / "bin" / "spark-submit"),
        *("--master", master),
        *jars,
        *options,
        *(word for key, value in conf.items() for word in ("--conf", f"{key}={value}")),
        str(stack.layout.project / "jobs" / "count_errors.py"),
        *("--batch", str(batch_id)),
    ]
