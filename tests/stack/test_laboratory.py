"""The laboratory without Spark: what is known to double does, and Tally does not.

``make lab`` is the whole of it. Here the same methods and points count in Python what they read
from the real Kafka, in processes that are really killed.
"""

import dataclasses
import multiprocessing
import os
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.laboratory import faults, tallys
from benchmarks.laboratory.bench import END, PARTITIONS, PER_BATCH, Bench, judge, write
from benchmarks.laboratory.faults import Fault
from benchmarks.laboratory.methods import METHODS
from benchmarks.peers.store import Store

from tally.config.loading import load_settings
from tally.model import OffsetRange, TopicPartition
from tests.python_reader import PythonReader
from tests.world import World

pytestmark = pytest.mark.stack

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__, "tests.migrations.test_migrations"])
"""Each is forked from one that has imported all of this, and has no threads; so are those of the
migrations, whose own list this one replaces."""


class WithoutSpark(Bench):
    """Reads in Python."""

    def read(self, starts: Mapping[int, int]) -> tuple[Any, dict[int, int]]:
        """See :meth:`Bench.read`; of a frame this has what ``counts_of`` needs."""
        settings = load_settings(self.config)
        reader = PythonReader(kafka=settings.kafka)
        ends = {p: min(END, start + PER_BATCH) for p, start in starts.items()}
        rows = [
            {"log_time": record.value[:16].decode()}
            for p, start in starts.items()
            for record in reader._read(
                settings.pipeline(self.pipeline),
                OffsetRange(
                    partition=TopicPartition(topic=self.topic, partition=p),
                    from_offset=start,
                    until_offset=ends[p],
                ),
            )
        ]
        return SimpleNamespace(collect=lambda: rows), ends


def process_all(
    name: str, folder: Path, bench: WithoutSpark, environment: Mapping[str, str]
) -> None:
    """What the process of a method does until it is killed between counts and offsets."""
    os.environ.clear()  # of the test that has started the server of all forks
    os.environ |= {**environment, faults.FAULT: Fault.BEFORE_OFFSETS, faults.FOLDER: str(folder)}
    faults.begin_driver()
    reader = PythonReader(kafka=load_settings(bench.config).kafka)
    with_spark = tallys.context

    def without_spark(config: Path, _: Any = None) -> Any:
        context = with_spark(config)
        return dataclasses.replace(context, open_reader=lambda: nullcontext(reader))

    tallys.context = without_spark
    METHODS[name].process_all(bench)


@pytest.mark.parametrize(
    ("name", "verdict"), [("batch", "exact"), ("at-least-once", "600 doubled")]
)
def test_counts_double_where_offsets_are_apart(
    world: World, tmp_path: Path, name: str, verdict: str
) -> None:
    """Batches of 600 lines, of which the second is killed between counts and offsets."""
    world.configure(max_records_per_partition=PER_BATCH)
    world.add_partitions(PARTITIONS)
    write(world.settings.kafka.bootstrap_servers, world.topic)
    database = f"lab_{world.name}"
    password = world.stack.credentials().mysql_root
    mysql = world.settings.mysql
    login = {"host": mysql.host, "port": mysql.port, "user": "root", "password": password}
    store = Store({**login, "database": database}, "lab")
    world.as_root(f"create database {database}")
    try:
        store.create()
        bench = WithoutSpark(
            spark=None, config=world.config, pipeline=world.name, topic=world.topic, store=store
        )
        ends = []
        for _ in range(2):
            process = PROCESSES.Process(
                target=process_all, args=(name, tmp_path, bench, dict(os.environ))
            )
            process.start()
            process.join()
            ends.append(process.exitcode)
        assert ends == [-signal.SIGKILL, 0]
        tallys_own = dataclasses.replace(store, name=f"tally.{world.name}")
        found = tallys_own if METHODS[name].delivery else store
        assert str(judge(found.counts())) == verdict
        assert world.audit().holds
    finally:
        world.as_root(f"drop database {database}")
