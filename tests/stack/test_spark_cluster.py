"""The local stack's Spark cluster: batches are counted on workers, whatever happens to one."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from tally.config.servers import SparkSettings
from tally.counting.run import run_batches
from tally.errors import ReadError
from tally.spark.connect import connect_session
from tally_local.stack.server import Part, PartState, page_of
from tally_local.stack.spark_cluster import WORKERS
from tally_local.stack.stack import Stack
from tests.campaigns import share
from tests.servers import PROJECT, TALLY
from tests.spark_submit import job, spark_environment
from tests.waiting import wait_until
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark]

ERROR = "2017-07-30 14:09:08 ERROR some message"
KEPT = ("rows", "procedure", "files")
"""Deliveries that keep each counted line."""
DELIVERIES = ("batch", "partition", *KEPT)
BATCHES = share(25)
PARTITIONS = 6
LARGE = 40
"""Partitions of a batch that keeps two executors busy."""
LINES = 50
"""Of a partition in each batch."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of which the cluster runs, and a Spark server that counts there."""
    made = Stack(project=PROJECT, home=tmp_path_factory.mktemp("a home"))
    try:
        made.up([Part.CLUSTER, Part.SPARK])
        yield made
    finally:
        made.down()


def settings(cluster: Stack) -> SparkSettings:
    """What the stack tells every command of its Spark."""
    return SparkSettings.model_validate(
        tomllib.loads(cluster.layout.overlay.read_text("utf-8"))["spark"]
    )


def running(cluster: Stack) -> set[Part]:
    return {s.part for s in cluster.status() if s.state is PartState.RUNNING}


def command_lines(cluster: Stack) -> Iterator[tuple[psutil.Process, list[str]]]:
    """The processes of the cluster; one that ends at this moment is left out."""
    for process in cluster.processes.members(Part.CLUSTER):
        with suppress(psutil.Error):
            yield process, process.cmdline()


def hosted(cluster: Stack, what: str, option: str) -> list[tuple[str, psutil.Process]]:
    """The processes of the cluster that have a word on their command line, with their hosts."""
    return [
        (line[line.index(option) + 1], process)
        for process, line in command_lines(cluster)
        if what in line
    ]


def workers(cluster: Stack) -> list[tuple[str, psutil.Process]]:
    """The workers with their hosts."""
    return hosted(cluster, "org.apache.spark.deploy.worker.Worker", "--host")


def executors(cluster: Stack) -> list[tuple[str, psutil.Process]]:
    """The executors with their hosts; both are on one while the other worker is away."""
    return hosted(cluster, "--executor-id", "--hostname")


def registered(cluster: Stack) -> set[str]:
    """The hosts of the workers that the master knows to be alive."""
    page = page_of(master_page(cluster))
    assert page is not None
    return {w["host"] for w in page["workers"] if w["state"] == "ALIVE"}


def master_page(cluster: Stack) -> str:
    port = json.loads(cluster.layout.ports.read_text("utf-8"))["cluster-web"]
    return f"http://127.0.0.1:{port}/json/"


def is_whole(cluster: Stack) -> bool:
    """Whether both workers are there, and both executors are somewhere."""
    return registered(cluster) == set(WORKERS) and len(executors(cluster)) == len(WORKERS)


def test_the_cluster_listens_on_loopback_addresses_alone(cluster: Stack) -> None:
    """Nobody else on the network can reach it, nor its executors."""
    wait_until(lambda: is_whole(cluster), pause_s=0.5)
    listening = set()
    for process, _ in command_lines(cluster):
        with suppress(psutil.Error):
            found = process.net_connections("tcp")
            listening |= {c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN}
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1", *WORKERS}


@pytest.mark.timeout(3600)
def test_no_delivery_loses_a_line_with_a_worker(
    cluster: Stack, migrated: Stack, tmp_path: Path
) -> None:
    """A worker is killed in each batch; what was committed stays.

    It is killed once the batch is claimed, and of partitions that commit by themselves right after
    the first commit. Until it was started again, the other worker counts.
    """
    worlds = {}
    for name in DELIVERIES:
        (folder := tmp_path / name).mkdir()
        keys = {"files_url": str(folder / "kept")} if name == "files" else {}
        worlds[name] = World.create(migrated, folder, delivery=name, partitions=PARTITIONS, **keys)
    batches, killed_within = Counter[str](), 0
    with connect_session(settings(cluster), {}) as session:
        for number in range(BATCHES):
            delivery = DELIVERIES[number % len(DELIVERIES)]
            world = worlds[delivery]
            for partition in range(PARTITIONS):
                world.produce([ERROR] * LINES, partition)
            before = PARTITIONS * batches[delivery]
            ids = [batch.batch_id for batch in world.plan().batches]
            with ThreadPoolExecutor() as pool:
                wait_until(lambda: is_whole(cluster), pause_s=0.5)
                at = before if delivery == "batch" else before + 1
                killing = pool.submit(kill_a_worker, cluster, number, world, at)
                ran = list(run_batches(world.context(session), ids))
            assert sorted(one.batch_id for one in ran) == ids
            killed_within += killing.result() < before + PARTITIONS
            batches[delivery] += 1
    assert killed_within  # nearly all of them are
    for delivery, world in worlds.items():
        lines = batches[delivery] * PARTITIONS * LINES
        assert (delivery, world.counts()) == (delivery, {"2017-07-30 14:09": lines})
        assert (delivery, kept(world, delivery)) == (delivery, lines if delivery in KEPT else 0)
        assert world.audit().holds
    wait_until(lambda: is_whole(cluster), pause_s=0.5)
    assert running(cluster) == {Part.CLUSTER, Part.SPARK}


def kept(world: World, delivery: str) -> int:
    """How many places in Kafka the kept lines have, each of which is kept once."""
    if delivery == "files":
        files = [row["file"] for row in world.rows(f"select file from `{world.name}_files`")]
        rows = [row for file in files for row in pq.read_table(file[7:]).to_pylist()]
    elif delivery in KEPT:
        rows = world.rows(f"select partition_id, record_offset from `{world.name}_rows`")
    else:
        return 0
    places = {(row["partition_id"], row["record_offset"]) for row in rows}
    assert len(rows) == len(places)
    return len(places)


def live(world: World) -> int:
    return sum(segment["state"] == "live" for segment in world.segments())


def kill_a_worker(cluster: Stack, number: int, world: World, committed: int) -> int:
    """Kill a worker, with its executors, once so many segments are committed and one is claimed.

    Each worker has its turn, by ``number``. Returns how many segments were committed, when the
    master knows that the worker is gone.
    """
    claimed = "select 1 from batch where pipeline = %s and state = 'planned' and attempt > 0"
    wait_until(
        lambda: (
            live(world) >= committed
            and (live(world) > committed or world.rows(claimed, [world.name]))
        )
    )
    found, executing = live(world), executors(cluster)
    hosts = [host for host, _ in executing]
    preferred = WORKERS[number % len(WORKERS)]
    gone = preferred if preferred in hosts else hosts[0]
    for host, process in [*workers(cluster), *executing]:
        if host == gone:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    wait_until(lambda: gone not in registered(cluster))
    return found


def test_a_small_batch_does_not_wait_for_a_large_one(
    cluster: Stack, migrated: Stack, tmp_path: Path
) -> None:
    """Pipelines on one server have fair shares: else all tasks of the first batch go first."""
    worlds = []
    for name, partitions in (("large", LARGE), ("small", 1)):
        (folder := tmp_path / name).mkdir()
        worlds.append(World.create(migrated, folder, delivery="partition", partitions=partitions))
        for partition in range(partitions):
            worlds[-1].produce([ERROR] * LINES, partition)
    large, small = worlds
    ids = [[batch.batch_id for batch in world.plan().batches] for world in worlds]
    with (
        connect_session(settings(cluster), {}) as one,
        connect_session(settings(cluster), {}) as other,
        ThreadPoolExecutor() as pool,
    ):
        running = pool.submit(lambda: list(run_batches(large.context(one), ids[0])))
        wait_until(lambda: live(large))
        list(run_batches(small.context(other), ids[1]))
        assert live(large) < LARGE / 2
        assert len(running.result()) == LARGE


def test_a_master_that_was_killed_gives_new_executors(
    cluster: Stack, migrated: Stack, tmp_path: Path
) -> None:
    """Batches go on meanwhile, as their executors do; afterwards a lost one is replaced."""
    wait_until(lambda: is_whole(cluster), pause_s=0.5)
    world = World.create(migrated, tmp_path, partitions=2)
    with connect_session(settings(cluster), {}) as session:
        (_, master), *_ = hosted(cluster, "org.apache.spark.deploy.master.Master", "--host")
        master.kill()
        world.produce([ERROR] * LINES)
        world.minute(session)
        wait_until(lambda: page_of(master_page(cluster)) and is_whole(cluster), pause_s=0.5)
        (_, executor), *_ = executors(cluster)
        executor.kill()
        executor.wait()
        wait_until(lambda: is_whole(cluster), pause_s=0.5)
        world.produce([ERROR] * LINES, 1)
        world.minute(session)
    assert world.counts() == {"2017-07-30 14:09": 2 * LINES}


def test_without_the_server_a_batch_is_submitted_to_the_cluster(
    cluster: Stack, world: World
) -> None:
    """Jars and code reach the executors by the configuration alone."""
    world.produce([ERROR] * LINES)
    (batch_id,) = world.plan().batch_ids
    cluster.down([Part.SPARK])
    assert running(cluster) == {Part.CLUSTER}
    spark = settings(cluster)
    assert spark.master.startswith("spark://127.0.0.1:")
    connection = json.loads((cluster.layout.airflow / "connections.json").read_text("utf-8"))
    assert connection["tally_spark"]["host"] == spark.master
    command = job(world.stack, batch_id, master=spark.master, conf=spark.conf)
    answer = subprocess.run(
        command, env=spark_environment(), capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert world.counts() == {"2017-07-30 14:09": LINES}


def run_alone(
    cluster: Stack, world: World, jars: Path, conf: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """``tally run`` without the server, with such a configuration beside the cluster's."""
    spark = settings(cluster)
    variables = {
        "TALLY_CONFIG": str(world.config),
        "TALLY_SPARK__MASTER": spark.master,
        "TALLY_SPARK__JARS_DIR": str(jars),
        "TALLY_SPARK__CONF": json.dumps(spark.conf | conf),
    }
    return subprocess.run(
        [TALLY, "run", "--pipeline", world.name],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_executors_get_python_from_the_configuration_alone(
    cluster: Stack, world: World, tmp_path: Path
) -> None:
    """Their Python has no packages; they come and go as they are needed."""
    jars = shutil.copytree(world.stack.jars_dir, tmp_path / "jars")
    subprocess.run([TALLY, "jars", jars, "--python"], check=True)
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    world.configure(delivery="partition")
    world.produce([ERROR] * LINES)
    conf = {
        "spark.pyspark.python": str(bare),
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
    }
    answer = run_alone(cluster, world, jars, conf)
    assert answer.returncode == 0, answer.stderr
    assert world.counts() == {"2017-07-30 14:09": LINES}


def test_a_batch_that_executors_have_no_memory_for_is_counted_with_more(
    cluster: Stack, world: World
) -> None:
    """They end, the batch stays open, and the error names what gives more."""
    world.configure(delivery="partition")
    world.produce([f"{ERROR}{' ' * 900_000}"] * 250, **{"compression.type": "gzip"})
    too_little = {
        "spark.executorEnv._JAVA_OPTIONS": "-Xmx160m",
        # With their defaults Spark refuses so little.
        "spark.network.maxRemoteBlockSizeFetchToMem": "50m",
        "spark.testing.reservedMemory": "1000000",
        "spark.task.maxFailures": "1",
    }
    answer = run_alone(cluster, world, world.stack.jars_dir, too_little)
    assert answer.returncode == ReadError.exit_code, answer.stderr
    assert "spark.executor.memory" in answer.stderr
    # The task's own error, or where another thread met it, the executor's exit code.
    assert re.search(r"by: java.lang.OutOfMemoryError|code 52\b", answer.stderr), answer.stderr
    assert world.counts() == {}
    answer = run_alone(cluster, world, world.stack.jars_dir, {})
    assert answer.returncode == 0, answer.stderr
    assert world.counts() == {"2017-07-30 14:09": 250}


def test_the_cluster_ends_with_its_executors(cluster: Stack) -> None:
    cluster.down([Part.CLUSTER])
    assert cluster.processes.members(Part.CLUSTER) == []
    assert "spark://" not in cluster.layout.overlay.read_text(encoding="utf-8")
