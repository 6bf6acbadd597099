"""Counting on a Spark Connect server: a real one, and what it looks like when it is not well."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pyarrow as pa
import pytest
from pydantic import SecretStr
from pyspark.sql.connect.client import SparkConnectClient

from tally import errors
from tally.aggregates.counts import CountRequest
from tally.audit.recount import recount
from tally.config.servers import KafkaSettings, SparkSettings
from tally.context import open_context
from tally.model import OffsetRange
from tally.spark.connect import connect_session
from tally.spark.counting import SparkReader
from tally.spark.reading import collect, deadline, read_errors
from tally.spark.session import reader_options, session_options, spark_session
from tally.status.doctor.machine import check_connect, check_engine
from tally.status.health import Health
from tests.connect_server import ConnectServer, connect_server
from tests.spark.json_documents import Documents
from tests.spark.outcomes import TIMES
from tests.waiting import wait_until
from tests.world import Value, World, run_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.stack,
    # PySpark warns before it raises; the error says all of it.
    pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED"),
]

LINES: list[Value] = [
    "2017-07-30 14:09:08 ERROR one",
    "2017-07-30 14:09:59 ERROR two",
    "2017-07-30 14:10:00 INFO three",
    "1969-12-31 23:59:59 ERROR before the epoch",
    "2017-03-26 02:30:00 ERROR in no clock of Berlin",
    "no line at all",
    b"2017-07-30 14:09:08 ERROR \xff\xfe no text",
    b"\x00\x01\xff",
    "",
    None,
]


def connected(settings: SparkSettings, **patience: Any) -> AbstractContextManager["SparkSession"]:
    """A session as :func:`spark_session` opens it, with another patience."""
    return connect_session(settings, session_options(settings), **patience)


def planned(world: World) -> CountRequest:
    return CountRequest(pipeline=world.pipeline, ranges=world.plan().ranges)


def counted_by_both(world: World, connect: ConnectServer, spark: "SparkSession") -> Any:
    """All that a batch holds, in which driver and server agree byte by byte."""
    return read_by_both(planned(world), world, connect, spark)


def read_by_both(
    request: CountRequest, world: World, connect: ConnectServer, spark: "SparkSession"
) -> Any:
    """What both find for a request."""
    found = []
    for opened in (nullcontext(spark), spark_session(connect.settings, "test")):
        with opened as session:
            reader = SparkReader(session=session, kafka=world.settings.kafka)
            with reader.count(request) as counts:
                rows = [sorted(r, key=repr) for r in (counts.contributions, counts.dead_letters)]
                found.append((counts.totals if not request.parts else counts.parts, *rows))
    here, there = found
    assert repr(there) == repr(here)
    return here


def run_there(world: World, connect: ConnectServer) -> None:
    """Count and commit the open batch, as a job does whose Spark is the server."""
    ctx = open_context(
        world.settings, open_session=partial(spark_session, connect.settings, "test")
    )
    run_batch(ctx, world.batches()[-1]["batch_id"])


def test_a_server_counts_what_a_driver_counts(
    world: World, connect: ConnectServer, spark: "SparkSession"
) -> None:
    """Minutes, totals and dead letters, in the same types."""
    world.configure(dead_letter_max_bytes=20)
    world.produce(LINES, 0)
    world.produce(LINES[::-1] * 3, 1)
    _, _, dead_letters = counted_by_both(world, connect, spark)
    assert len(dead_letters) >= 4 * 4
    run_there(world, connect)
    assert world.counts()["2017-07-30 14:09"] >= 8
    assert world.audit().holds


def test_a_recount_counts_each_part_by_itself(
    world: World, connect: ConnectServer, spark: "SparkSession"
) -> None:
    """Parts of very different size: the first line alone, the four after it, and the rest."""
    lines = [
        "2017-07-30 14:09:08 ERROR one",
        *["2017-07-30 14:09:59 ERROR two", "2017-07-30 14:10:00 INFO three", "no line", None],
        *["2017-07-30 14:09:08 ERROR four"] * 40,
    ]
    for partition in (0, 1):
        world.produce(lines, partition)
    cuts = {0: (0, 1, 5, 45), 1: (0, 45)}
    parts = [
        OffsetRange(partition=world.partition(number), from_offset=a, until_offset=b)
        for number, offsets in cuts.items()
        for a, b in pairwise(offsets)
    ]
    request = dataclasses.replace(planned(world), parts=parts)
    totals, contributions, letters = read_by_both(request, world, connect, spark)
    counted = [(total.records, total.matched, total.malformed) for total in totals.values()]
    assert (list(totals), counted) == (parts, [(1, 1, 0), (4, 1, 2), (40, 40, 0), (45, 42, 2)])
    assert {(c.part, c.log_time[-8:]): c.sums[0] for c in contributions} == {
        (part, "14:09:00"): lines for part, lines in zip(parts, (1, 1, 40, 42), strict=True)
    }
    assert sorted((d.partition.partition, d.offset) for d in letters) == [
        (0, 3),
        (0, 4),
        (1, 3),
        (1, 4),
    ]


def test_what_compaction_takes_between_the_reads_of_a_recount_is_one_difference(
    world: World, spark: "SparkSession"
) -> None:
    """The second read brings the malformed records: one of them is gone by then."""
    world.configure(offsets="sparse")
    world.produce(["no line", "2017-07-30 14:09:08 ERROR one", "nor this"])
    assert world.minute() is not None
    reads = []

    def fetch(
        rows: "DataFrame", ranges: Sequence[OffsetRange], **how: bool
    ) -> "Iterator[Sequence[object]]":
        found = list(collect(rows, ranges, **how))
        reads.append(len(found))
        return iter(found if len(reads) == 1 else found[1:])

    reader = SparkReader(session=spark, kafka=world.settings.kafka, fetch=fetch)
    counted, violations = recount(world.context(reader), world.name, lambda *_: None)
    assert (counted.segments, counted.records, reads[1:]) == (1, 3, [2])
    (violation,) = violations
    assert "dead letter at offset" in violation.where
    assert "Kafka holds none" in violation.detail
    assert "compaction may have removed" in violation.detail


def test_a_server_reads_json_as_a_driver_does(
    world: World, connect: ConnectServer, spark: "SparkSession"
) -> None:
    """What decides about duplicate keys and odd characters is set in each session."""
    fields = {"json": {"time": "time"}, "time_format": "yyyy-MM-dd'T'HH:mm:ss"}
    world.migrate(line_format=fields, levels=[], labels=["a", "level"])
    documents = Documents("connect")
    world.produce([documents.record(TIMES) for _ in range(2000)])
    _, contributions, dead_letters = counted_by_both(world, connect, spark)
    assert min(len(contributions), len(dead_letters)) > 100


def test_a_server_does_not_hide_that_records_are_gone(world: World, connect: ConnectServer) -> None:
    """The connector's words arrive, by whatever way a server tells them."""
    world.produce(["2017-07-30 14:09:08 ERROR one"] * 10)
    world.plan()
    world.delete_records(0, before=5)
    with pytest.raises(errors.DataLossError, match=r"no longer serves all of .*\[0, 10\)"):
        run_there(world, connect)
    assert world.counts() == {}


@pytest.mark.parametrize("engine", ["local", "connect"])
def test_a_read_tells_how_far_it_is_while_it_goes_on(
    world: World,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
) -> None:
    """A partition that is larger than a task may read is told in steps."""
    monkeypatch.setattr("tally.spark.counting._TASK_OFFSETS_MAX", 500)
    # The broker gives one batch of records every 300 ms, however fast it is.
    paced = {"max.partition.fetch.bytes": "1", "fetch.min.bytes": "10000000"}
    paced["fetch.max.wait.ms"] = "300"
    world.configure(reader={f"kafka.{name}": value for name, value in paced.items()})
    for partition, lines in enumerate((100, 2_000)):
        batches = {"batch.num.messages": 100, "linger.ms": 1_000}
        world.produce(["2017-07-30 14:09:08 ERROR some message"] * lines, partition, **batches)
    told: list[tuple[int, int]] = []
    opened: AbstractContextManager[SparkSession] = (
        nullcontext(request.getfixturevalue("spark"))
        if engine == "local"
        else spark_session(request.getfixturevalue("connect").settings, "test")
    )
    with opened as session:
        reader = SparkReader(
            session=session,
            kafka=world.settings.kafka,
            on_read=lambda read, total: told.append((read, total)),
        )
        with reader.count(planned(world)) as counts:
            assert sum(total.matched for total in counts.totals.values()) == 2_100
            ended_at = len(told)
    read = [offsets for offsets, _ in told]
    assert [total for _, total in told] == [2_100] * len(told)
    assert read == sorted(set(read))
    assert any(0 < offsets < 2_100 for offsets in read), read
    assert len(told) == ended_at  # nothing is told of a read that has ended


def test_sessions_share_the_pythons_of_their_server(connect: ConnectServer) -> None:
    """Spark never ends what a session has of its own: a thread and a pool of Pythons for each."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    for _ in range(3):
        with spark_session(connect.settings, "test") as session:
            assert session.range(3).mapInArrow(rows, "id bigint").count() == 3
    jcmd = shutil.which("jcmd") or str(Path(connect.process.exe()).with_name("jcmd"))
    threads = subprocess.run(
        [jcmd, str(connect.process.pid), "Thread.print"], check=True, capture_output=True, text=True
    ).stdout
    assert threads.count("Idle Worker Monitor") == 1


def test_what_a_session_may_not_set_is_left_to_the_server(connect: ConnectServer) -> None:
    """A tally.toml may serve spark-submit as well. A value that is refused is a wrong setting."""
    conf = {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.warehouse.dir": "/elsewhere",
        "spark.executor.memory": "1g",
    }
    with spark_session(connect.settings.model_copy(update={"conf": conf}), "test") as remote:
        assert remote.conf.get("spark.sql.shuffle.partitions") == "3"
        assert remote.conf.get("spark.sql.session.timeZone") == "UTC"
        assert remote.conf.get("spark.sql.warehouse.dir") != "/elsewhere"
    wrong = connect.settings.model_copy(update={"conf": {"spark.sql.shuffle.partitions": "many"}})
    refused = pytest.raises(errors.ConfigError, match=r"spark\.sql\.shuffle\.partitions")
    with refused, spark_session(wrong, "test"):
        pytest.fail("it takes anything")


def test_kafkas_password_is_in_no_event_log(world: World, connect: ConnectServer) -> None:
    """The server logs and shows each plan with its options."""
    kafka = KafkaSettings(
        bootstrap_servers="named-in-the-plan:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="ann",
        sasl_password=SecretStr('geh"eim ;} \\ zuletzt'),
    )
    options = reader_options(kafka, world.settings.pipeline(world.name))
    with spark_session(connect.settings, "test") as remote:
        reader = remote.read.format("kafka").options(**options)
        assert reader.option("subscribe", "x").load().limit(0).collect() == []
    # The server writes the log beside its work.
    wait_until(lambda: "named-in-the-plan:1" in connect.events())
    events = connect.events()
    assert "geh" not in events
    assert "zuletzt" not in events


def test_the_doctor_asks_the_server(connect: ConnectServer, world: World) -> None:
    """Instead of looking for Java and jars on this machine."""
    settings = world.settings.model_copy(update={"spark": connect.settings})
    found = {d.check: d.health for d in check_engine(settings)}
    assert found == {"spark.server": Health.OK, "spark.connector": Health.OK}
    wrong = SparkSettings(master=connect.settings.master)
    (refused,) = check_connect(wrong)
    assert refused.health is Health.FAIL
    assert "No authentication token" in refused.detail


def test_a_server_that_is_not_there_or_refuses_is_told_apart(connect: ConnectServer) -> None:
    """A retry of the task may find it; a wrong token is for a person to correct, and not shown."""
    with (
        pytest.raises(
            errors.SparkUnavailableError, match=r"sc://127\.0\.0\.1:1 did not answer"
        ) as away,
        connected(SparkSettings(master="sc://127.0.0.1:1"), tries=0),
    ):
        pytest.fail("there is no server")
    assert "use_ssl=true if the server has TLS" in away.value.next_step
    wrong = {"master": connect.settings.master, "connect_token": "wr0ng"}
    with (
        pytest.raises(errors.AccessDeniedError, match="Invalid authentication token") as caught,
        spark_session(SparkSettings.model_validate(wrong), "test"),
    ):
        pytest.fail("the server lets everybody in")
    assert "wr0ng" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.SparkUnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.SparkUnavailableError),
        (grpc.StatusCode.UNAUTHENTICATED, errors.AccessDeniedError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.ConfigError),
    ],
)
def test_a_clone_that_fails_is_an_error_of_tally(
    monkeypatch: pytest.MonkeyPatch,
    connect: ConnectServer,
    status: grpc.StatusCode,
    kind: type[errors.TallyError],
) -> None:
    """PySpark leaves gRPC's own errors of this one request as they are."""

    class Refused(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return status

        def details(self) -> str:
            return "it went wrong"

    def refuse(*_: object) -> None:
        raise Refused

    monkeypatch.setattr(SparkConnectClient, "clone", refuse)
    with pytest.raises(kind, match="it went wrong"), spark_session(connect.settings, "test"):
        pytest.fail("there is no session")


def test_a_server_without_the_connector_is_said_so(tmp_path: Path) -> None:
    """With the server's own words, before anything is read."""
    with (
        connect_server(tmp_path, jars=None) as bare,
        pytest.raises(errors.JarsMissingError, match=r"cannot load .*[kK]afka") as caught,
        spark_session(bare.settings, "test"),
    ):
        pytest.fail("it has the connector")
    assert "\n" not in str(caught.value)


def test_a_server_that_falls_silent_keeps_nobody_waiting(connect: ConnectServer) -> None:
    """Neither with a question nor with good-bye."""
    default_s = connect_session.__wrapped__.__kwdefaults__["answer_s"]  # type: ignore[attr-defined]
    try:
        with connected(connect.settings, tries=0, close_s=1.0):
            connect.process.suspend()
            begun = time.monotonic()
            brief = {"tries": 0, "answer_s": 2.0, "close_s": 1.0}
            with pytest.raises(errors.SparkUnavailableError), connected(connect.settings, **brief):
                pytest.fail("it answers")
    finally:
        connect.process.resume()
    # Four seconds, and what a busy machine adds; by default one question takes as long as this.
    assert time.monotonic() - begun < default_s


LOSES_ITS_EXIT = """
import json, sys, time
from tally.config.servers import SparkSettings
from tally.spark.connect import connect_session
from tally.spark.connect import leave_on_sigterm

leave_on_sigterm()
with connect_session(SparkSettings.model_validate(json.loads(sys.argv[1])), {}):
    try:
        print("ready", flush=True)
        while True:  # in pieces: a signal right before a sleep does not end it
            time.sleep(0.1)
    except SystemExit:
        print("lost", flush=True)
    time.sleep(600)
"""


def test_a_driver_that_is_ended_closes_its_session(connect: ConnectServer) -> None:
    """An exception in gRPC's own code may leave its connection locked for ever."""
    user = f"u{uuid.uuid4().hex}"
    master = f"{connect.settings.master}/;user_id={user}"
    keys = {"master": master, "connect_token": connect.token}
    with subprocess.Popen(
        [sys.executable, "-c", LOSES_ITS_EXIT, json.dumps(keys)], stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        driver.send_signal(signal.SIGTERM)
        assert driver.stdout.read() == "lost\n"
    assert driver.returncode == 128 + signal.SIGTERM
    closed = "ConnectSessionClosed"
    wait_until(lambda: any(closed in e and user in e for e in connect.events().splitlines()))


def test_a_server_that_dies_is_a_failure_that_may_pass(
    world: World, tmp_path: Path, jars_dir: Path
) -> None:
    """Whatever is asked of it next: more rows, or a setting."""
    world.produce(LINES)
    request = planned(world)
    with (
        connect_server(tmp_path, jars_dir) as server,
        connected(server.settings, tries=0, close_s=1.0) as session,
    ):
        # First a count that takes too long: for the client it has ended, its task may go on.
        endless = session.range(0, 10**15, 1, 1).selectExpr("sum(id % 7)")
        with (
            pytest.raises(errors.CountTimeoutError, match="in 1 s, and was ended"),
            deadline(session, 1),
            read_errors([]),
        ):
            endless.collect()

        def fetch(
            rows: "DataFrame", ranges: Sequence[OffsetRange], **how: bool
        ) -> "Iterator[Sequence[object]]":
            yield from collect(rows, ranges, **how)
            server.process.kill()
            server.process.wait()

        for _ in ("in the read", "before the read"):
            reader = SparkReader(session=session, kafka=world.settings.kafka, fetch=fetch)
            with pytest.raises(errors.ReadError, match="could not read"), reader.count(request):
                pytest.fail("it was read")
            assert not server.process.is_running()
