"""The local stack's Spark cluster: batches are counted on workers, whatever happens to one."""

import json
import subprocess
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from tally.config.servers import SparkSettings
from tally.pipeline.replay import run_or_replan
from tally.spark.connect import connect_session
from tally_local.stack.pages import page_of
from tally_local.stack.server import Part, PartState
from tally_local.stack.spark_cluster import WORKERS
from tally_local.stack.stack import Stack
from tests.conftest import PROJECT
from tests.spark_submit import job, spark_environment
from tests.waiting import wait_until
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark]

ERROR = "2017-07-30 14:09:08 ERROR some message"
LINES = 1_000
BATCHES = 50
FEW = 50
"""Lines of a partition in each of many batches."""
TRIES = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of which the cluster runs, and a Spark server that counts there."""
    made = Stack(project=PROJECT, home=tmp_path_factory.mktemp("a home"))
    made.up([Part.CLUSTER, Part.SPARK])
    yield made
    made.down()


def settings(cluster: Stack) -> SparkSettings:
    """What the stack tells every command of its Spark."""
    return SparkSettings.model_validate(tomllib.loads(cluster.overlay.read_text("utf-8"))["spark"])


def running(cluster: Stack) -> set[Part]:
    return {s.part for s in cluster.status() if s.state is PartState.RUNNING}


def command_lines(cluster: Stack, part: Part) -> Iterator[tuple[psutil.Process, list[str]]]:
    """The processes of a part; one that ends at this moment is left out."""
    for process in cluster.members(part):
        with suppress(psutil.Error):
            yield process, process.cmdline()


def workers(cluster: Stack) -> dict[str, psutil.Process]:
    """The workers' processes by their host."""
    return {
        line[line.index("--host") + 1]: process
        for process, line in command_lines(cluster, Part.CLUSTER)
        if "org.apache.spark.deploy.worker.Worker" in line
    }


def hosts(cluster: Stack) -> list[str]:
    """The hosts of the executors; two of them may be on one for which the other worker is away."""
    lines = [line for _, line in command_lines(cluster, Part.CLUSTER)]
    return sorted(line[line.index("--hostname") + 1] for line in lines if "--executor-id" in line)


def spread(cluster: Stack) -> None:
    """Have an executor on each host: on a busy machine, both may be on one."""
    for _ in range(TRIES):
        wait_until(lambda: registered(cluster) == set(WORKERS), pause_s=0.5)
        cluster.down([Part.SPARK])
        cluster.up([Part.SPARK])
        wait_until(lambda: len(hosts(cluster)) == len(WORKERS), pause_s=0.5)
        if hosts(cluster) == list(WORKERS):
            return
    raise AssertionError(f"the executors are on {hosts(cluster)}")


def registered(cluster: Stack) -> set[str]:
    """The hosts of the workers that the master knows to be alive."""
    port = json.loads(cluster.layout.ports.read_text("utf-8"))["cluster-web"]
    page = page_of(f"http://127.0.0.1:{port}/json/")
    assert page is not None
    return {w["host"] for w in page["workers"] if w["state"] == "ALIVE"}


def counts_on(cluster: Stack, world: World) -> int:
    """Plan and count a batch on the cluster's Spark server; returns its records."""
    batch = world.plan().batch
    assert batch is not None
    with connect_session(settings(cluster), {}) as session:
        return sum(t.records for t in world.run(batch.batch_id, session).totals.values())


def test_both_workers_count_and_no_line_is_lost_with_one(cluster: Stack, world: World) -> None:
    """A worker that is killed is started again; until then the other one counts."""
    world.produce([ERROR] * LINES)
    assert counts_on(cluster, world) == LINES
    spread(cluster)
    for rounds, host in enumerate(WORKERS, start=2):
        gone = workers(cluster)[host]
        gone.kill()
        world.produce([ERROR] * LINES)
        assert counts_on(cluster, world) == LINES
        assert world.counts() == {"2017-07-30 14:09": rounds * LINES}
        wait_until(lambda: workers(cluster).keys() == set(WORKERS), pause_s=0.5)
        assert workers(cluster)[host].pid != gone.pid
        wait_until(lambda: registered(cluster) == set(WORKERS), pause_s=0.5)
    assert world.audit().holds
    assert Part.CLUSTER in running(cluster)


@pytest.mark.parametrize("delivery", ["partition", "rows", "procedure"])
def test_partitions_that_commit_by_themselves_lose_nothing_with_a_worker(
    cluster: Stack, migrated: Stack, tmp_path: Path, delivery: str
) -> None:
    """A worker is killed when the first partition is committed: the others follow, each once."""
    world = World.create(migrated, tmp_path, delivery=delivery, partitions=6)
    for rounds, host in enumerate(WORKERS, start=1):
        spread(cluster)
        for partition in range(6):
            world.produce([ERROR] * LINES, partition)
        ids = [batch.batch_id for batch in world.plan().batches]
        before = len(live(world))
        with ThreadPoolExecutor() as pool:
            killer = pool.submit(kill_at_the_first_commit, cluster, host, world, before)
            with connect_session(settings(cluster), {}) as session:
                ran = run_or_replan(world.context(session), ids)
        assert sorted(one.batch.batch_id for one in ran) == ids
        assert world.counts() == {"2017-07-30 14:09": rounds * 6 * LINES}
        assert 0 < killer.result() < 6
        if delivery != "partition":
            assert kept(world) == [(rounds * LINES, 6 * rounds * LINES)]
        wait_until(lambda: registered(cluster) == set(WORKERS), pause_s=0.5)
    assert world.audit().holds


def test_of_fifty_batches_none_loses_a_line_with_a_worker(
    cluster: Stack, migrated: Stack, tmp_path: Path
) -> None:
    """In each third a worker is killed in the middle of a batch, and its files are whole."""
    world = World.create(
        migrated, tmp_path, delivery="files", files_url=str(tmp_path / "kept"), partitions=6
    )
    spread(cluster)
    kills = dict(zip((8, 25, 42), [*WORKERS, WORKERS[0]], strict=True))
    with ThreadPoolExecutor() as pool, connect_session(settings(cluster), {}) as session:
        for number in range(BATCHES):
            for partition in range(6):
                world.produce([ERROR] * FEW, partition)
            ids = [batch.batch_id for batch in world.plan().batches]
            before = len(live(world))
            killer = None
            if number in kills:
                wait_until(lambda: registered(cluster) == set(WORKERS), pause_s=0.5)
                wait_until(lambda: len(hosts(cluster)) == len(WORKERS), pause_s=0.5)
                host = kills[number]
                killer = pool.submit(kill_at_the_first_commit, cluster, host, world, before)
            ran = run_or_replan(world.context(session), ids)
            assert sorted(one.batch.batch_id for one in ran) == ids
            assert killer is None or 0 < killer.result() < 6
    assert world.counts() == {"2017-07-30 14:09": BATCHES * 6 * FEW}
    files = [row["file"] for row in world.rows(f"select file from `{world.name}_files`")]
    found = [row for file in files for row in pq.read_table(file[7:]).to_pylist()]
    places = {(row["partition_id"], row["record_offset"]) for row in found}
    assert len(files) == 6 * BATCHES
    assert len(found) == len(places) == BATCHES * 6 * FEW
    assert world.audit().holds


def kept(world: World) -> list[tuple[int, int]]:
    """How many offsets readers see, and how many lines."""
    rows = world.rows(
        f"select count(distinct record_offset) as offsets, count(*) as n from `{world.name}_rows`"
    )
    return [(row["offsets"], row["n"]) for row in rows]


def kill_at_the_first_commit(cluster: Stack, host: str, world: World, before: int) -> int:
    """Kill a worker with its executor; returns how many segments were committed by then.

    Args:
        cluster: The stack.
        host: Of the worker.
        world: The pipeline.
        before: Segments that were committed before.
    """
    wait_until(lambda: len(live(world)) > before, pause_s=0.02)
    committed = len(live(world)) - before
    worker = workers(cluster)[host]
    for process, line in command_lines(cluster, Part.CLUSTER):
        if process.pid == worker.pid or ("--executor-id" in line and host in line):
            with suppress(psutil.Error):
                process.kill()
    return committed


def live(world: World) -> list[int]:
    """The segments that are committed."""
    return [s["segment_id"] for s in world.segments() if s["state"] == "live"]


def test_the_cluster_listens_on_loopback_addresses_alone(cluster: Stack) -> None:
    """Nobody else on the network can reach it, nor its executors."""
    wait_until(lambda: len(hosts(cluster)) == len(WORKERS), pause_s=0.5)
    listening = set()
    for process, _ in command_lines(cluster, Part.CLUSTER):
        with suppress(psutil.Error):
            found = process.net_connections("tcp")
            listening |= {c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN}
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1", *WORKERS}


@pytest.mark.timeout(1800)
def test_without_the_server_a_batch_is_submitted_to_the_cluster(
    cluster: Stack, world: World
) -> None:
    """Jars and code reach the executors by the configuration alone."""
    world.produce([ERROR] * LINES)
    batch = world.plan().batch
    assert batch is not None
    cluster.down([Part.SPARK])
    assert running(cluster) == {Part.CLUSTER}
    spark = settings(cluster)
    assert spark.master.startswith("spark://127.0.0.1:")
    connection = json.loads((cluster.layout.airflow / "connections.json").read_text("utf-8"))
    assert connection["tally_spark"]["host"] == spark.master
    command = job(world.stack, batch.batch_id, master=spark.master, conf=spark.conf)
    answer = subprocess.run(
        command, env=spark_environment(), capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert world.counts() == {"2017-07-30 14:09": LINES}
    cluster.up([Part.SPARK])


def test_the_server_goes_where_the_cluster_goes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It counts on the cluster from its start to its stop, and is not left without it."""
    stack = Stack(project=PROJECT, home=tmp_path_factory.mktemp("another home"))
    try:
        stack.up([Part.SPARK])
        alone = masters(stack)
        stack.up([Part.CLUSTER])
        assert running(stack) == {Part.CLUSTER, Part.SPARK}
        assert alone == ["local[2]"]
        assert masters(stack)[0].startswith("spark://")
        stack.down([Part.CLUSTER])
        assert running(stack) == set()
        assert stack.stopped([Part.CLUSTER, Part.SPARK]) == [Part.CLUSTER, Part.SPARK]
        stack.watch([Part.CLUSTER, Part.CLUSTER])  # as `tally up cluster --cluster --foreground`
        assert stack.members(Part.CLUSTER) == []
        assert "spark://" not in stack.overlay.read_text(encoding="utf-8")
        stack.up([Part.SPARK])
        assert masters(stack) == ["local[2]"]
    finally:
        stack.down()


def masters(stack: Stack) -> list[str]:
    """Where the stack's Spark server counts."""
    lines = [line for _, line in command_lines(stack, Part.SPARK)]
    return [
        line[line.index("--master") + 1]
        for line in lines
        if "--master" in line and line[0].endswith("java")
    ]
