"""How long a small minute takes: 1,000 new lines, from the start of spark-submit to committed.

Usage: ``.tally/venv/bin/python -m benchmarks.job_start [--rounds 3]``

Compares flags of the driver's JVM, in turns within one run, on a stack of its own:

- ``plain``: no flags,
- ``quick``: the flags that small batches get (tally.spark.QUICK_START),
- ``quick+cds``: these and an archive of loaded classes, made before the first round.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

from tally.kafka import Kafka, LineWriter
from tally.migrations import migrate
from tally.minute import plan_batch
from tally.model import TopicPartition
from tally.mysql import transaction
from tally.settings import Settings, load_settings
from tally.spark import QUICK_START
from tally.stack.server import Part
from tally.stack.stack import Stack

PROJECT = Path(__file__).parents[1]
PARTITIONS = 4
LINES = 1_000


def main() -> int:
    """Run the comparison and print one line per variant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    stack = Stack(project=PROJECT, home=PROJECT / ".tally" / "bench", announce=_say)
    with stack.foreground([Part.KAFKA, Part.MYSQL]), TemporaryDirectory() as folder:
        settings = _settings(stack, Path(folder))
        archive = Path(folder) / "classes.jsa"
        variants = {
            "plain": "",
            "quick": QUICK_START,
            "quick+cds": f"{QUICK_START} -XX:SharedArchiveFile={archive}",
        }
        _run(stack, settings, Path(folder), f"{QUICK_START} -XX:ArchiveClassesAtExit={archive}")
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name, flags in variants.items():
                seconds[name].append(_run(stack, settings, Path(folder), flags))
    for name, values in seconds.items():
        _say(
            f"  {name:10} median {statistics.median(values):5.1f} s"
            f"  min {min(values):5.1f}  max {max(values):5.1f}"
        )
    return 0


def _settings(stack: Stack, folder: Path) -> Settings:
    topic = f"start-{time.time_ns()}"
    config = folder / "tally.toml"
    config.touch(mode=0o600)
    overlay = stack.overlay.read_text(encoding="utf-8")
    config.write_text(f'{overlay}\n[pipelines.start]\ntopics = ["{topic}"]\n', encoding="utf-8")
    settings = load_settings(config)
    # The ledger of an earlier run knows the pipeline with another topic.
    with transaction(settings.mysql) as tx:
        tx.execute("drop database if exists tally")
        tx.execute("create database tally")
    migrate(settings)
    Kafka(settings.kafka).create_topic(topic, PARTITIONS)
    return settings


def _run(stack: Stack, settings: Settings, folder: Path, flags: str) -> float:
    """Write the lines, plan, and time spark-submit."""
    topic = settings.pipeline("start").topics[0]
    writer = LineWriter(settings.kafka)
    for number in range(LINES):
        partition = TopicPartition(topic=topic, partition=number % PARTITIONS)
        writer.write(partition, b"2026-11-20 14:05:08 ERROR x", lambda _: None, _fail)
    writer.flush()
    batch = plan_batch(settings, "start").batch
    if batch is None:
        raise RuntimeError("there is nothing to count")
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        "--master",
        "local[2]",
        "--driver-class-path",
        f"{stack.jars_dir}/*",
        *(["--driver-java-options", flags] if flags else []),
        "--conf",
        "spark.log.level=ERROR",
        str(PROJECT / "jobs" / "count_errors.py"),
        "--batch",
        str(batch.batch_id),
    ]
    began = time.perf_counter()
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        env={
            **os.environ,
            "TALLY_CONFIG": str(folder / "tally.toml"),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
    )
    return time.perf_counter() - began


def _fail(why: str) -> None:
    raise RuntimeError(why)


def _say(message: str) -> None:
    print(message, flush=True)


if __name__ == "__main__":
    sys.exit(main())
