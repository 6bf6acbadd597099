"""Drivers of the tests' own: with an archive of Spark's classes, and on a full disk."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from tally.errors import AccessDeniedError, ReadError
from tally.spark.class_archive import build_archive
from tally.spark.java import JAVA_OPTIONS, java, with_archive
from tally.spark.reading import read_errors
from tests.servers import PROJECT
from tests.spark_submit import SPARK_HOME
from tests.unit.values import span
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

SHUFFLE = """
import sys
from tally.config.servers import SparkSettings
from tally.errors import UnwritableError
from tally.spark.reading import read_errors
from tally.spark.session import spark_session
jars_dir, name, value = sys.argv[1:]
settings = SparkSettings(master="local[1]", jars_dir=jars_dir, conf={name: value})
with spark_session(settings, "a shuffle") as session:
    rows = session.range(0, 200_000, numPartitions=2).selectExpr("uuid() as u").repartition(2)
    try:
        with read_errors([]):
            rows.write.format("noop").mode("overwrite").save()
            print("written")
    except UnwritableError as error:
        print("said:", error, error.next_step)
"""
FROM_ARCHIVE = "source: shared objects file (top)"
without_blank = pytest.mark.skipif(" " in str(PROJECT), reason="Java uses no archive there")


@without_blank
def test_the_set_up_makes_an_archive_that_the_driver_uses(jars_dir: Path, tmp_path: Path) -> None:
    """The class path is the one for which it was made."""
    log = tmp_path / "loaded"
    option = ["spark.driver.extraJavaOptions", f"-Xlog:class+load:file={log}"]
    command = [sys.executable, "-c", SHUFFLE, str(jars_dir), *option]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.stdout == "written\n", answer.stderr
    loaded = log.read_text(encoding="utf-8", errors="replace")
    assert f"org.apache.spark.SparkContext {FROM_ARCHIVE}" in loaded
    assert loaded.count("shared objects file") > 5 * loaded.count("source: file:")


@without_blank
@pytest.mark.parametrize("damage", ["of another class path", "damaged"])
def test_an_unusable_archive_stops_nothing(jars_dir: Path, tmp_path: Path, damage: str) -> None:
    """Java starts Spark's program as without one."""
    copied, log = tmp_path / "jars", tmp_path / "loaded"
    shutil.copytree(jars_dir, copied)
    (archive,) = copied.glob("*.jsa")
    if damage == "damaged":
        archive.chmod(0o600)
        with archive.open("r+b") as stream:
            stream.seek(5000)
            stream.write(b"x" * 4000)
    options = shlex.split(with_archive({}, copied)[JAVA_OPTIONS])
    assert any(str(archive) in option for option in options)
    options += [f"-Xlog:class+load:file={log}", "-cp", f"{copied}/*:{SPARK_HOME}/jars/*"]
    submit = [java(), *options, "org.apache.spark.deploy.SparkSubmit", "--version"]
    answer = subprocess.run(submit, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "Using Scala version" in answer.stderr
    loaded = log.read_text(encoding="utf-8", errors="replace")
    assert "org.apache.spark.deploy.SparkSubmit" in loaded
    assert FROM_ARCHIVE not in loaded


@without_blank
def test_that_no_archive_is_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a Java that cannot, or in a folder of which it would use none; Spark needs none."""
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi\n'
        "echo 'Unrecognized option: -XX:ArchiveClassesAtExit' >&2\nexit 1\n",
        encoding="utf-8",
    )
    program.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(program.parents[1]))
    (folder := tmp_path / "jars").mkdir()
    (connector := folder / "spark-sql-kafka-0-10_2.13-4.2.0.jar").touch()
    said: list[str] = []
    build_archive(folder, said.append)
    assert "not archived" in said[-1]
    assert "Unrecognized option" in said[-1]
    assert list(folder.iterdir()) == [connector]
    build_archive(tmp_path / "my jars", said.append)
    assert "a folder with a blank" in said[-1]


def test_the_archive_is_added_to_other_options(tmp_path: Path) -> None:
    """A folder with a blank in its name stays one word; an archive of one's own stays."""
    folder = tmp_path / "my jars"
    folder.mkdir()
    stack_size = {JAVA_OPTIONS: "-Xss4m"}
    for own in ({}, stack_size):
        assert with_archive(own, folder) == own  # there is none yet
        assert with_archive(own, None) == own
    (folder / "classes-1.jsa").touch()
    for own, last in (({}, ""), (stack_size, " -Xss4m")):
        options = with_archive(own, folder)[JAVA_OPTIONS]
        assert options.startswith("-Xlog:cds=off")
        assert options.endswith(f'"-XX:SharedArchiveFile={folder}/classes-1.jsa"{last}')
    for option in ("-Xshare:off", "-XX:SharedArchiveFile=mine.jsa"):  # only one can be used
        assert with_archive({JAVA_OPTIONS: option}, folder) == {JAVA_OPTIONS: option}


def test_a_full_disk_under_spark_is_said(jars_dir: Path, tmp_path: Path) -> None:
    """Another try would end the same way; the setting names another folder."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = f"mount -t tmpfs -o size=2m none '{small}'"
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*inside, mounted], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small disk")
    option = ["spark.local.dir", str(small)]
    command = shlex.join([sys.executable, "-c", SHUFFLE, str(jars_dir), *option])
    command = f"{mounted} && exec {command}"
    done = subprocess.run([*inside, command], capture_output=True, text=True, check=False)
    assert "said: [unwritable] Spark cannot write temporary files" in done.stdout, done.stderr
    assert "No space left on device" in done.stdout
    assert "spark.local.dir" in done.stdout


def test_a_missing_java_is_not_retryable(tmp_path: Path) -> None:
    """An operator must install one; PySpark says only that its gateway has ended."""
    program = (
        "from tally.config.servers import SparkSettings\n"
        "from tally.spark.session import spark_session\n"
        "with spark_session(SparkSettings(master='local[1]'), 'x', needs_kafka=False): pass\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"no java in JAVA_HOME={tmp_path}" in ended.stderr.splitlines()[-1]


def test_what_kafka_refuses_and_damaged_bytes_are_told_apart_from_want_of_memory() -> None:
    """Only of other errors more memory, or fewer records at once, may be the cure."""
    exceptions = "Caused by: org.apache.kafka.common.errors"
    for text, kind, advises_memory in (
        (f"{exceptions}.TopicAuthorizationException: [alog]", AccessDeniedError, False),
        (f"{exceptions}.GroupAuthorizationException: [g]", AccessDeniedError, False),
        ("Caused by: org.apache.kafka.common.KafkaException: Record is corrupt", ReadError, False),
        ("Caused by: java.io.IOException: gone", ReadError, True),
        ("An error occurred while calling o1.collectToPython", ReadError, True),
    ):
        with pytest.raises(kind) as caught, read_errors([span(0, 3)]):
            raise PySparkException(text)
        assert ("spark.driver.memory" in str(caught.value)) is advises_memory
    assert "Spark's JVM ended before it answered" in str(caught.value)
    assert "An error occurred" not in str(caught.value)


def test_a_daemon_of_python_workers_ends_when_it_has_none() -> None:
    """Each session of a server has one; Spark would end it with the server alone."""
    brief = "import tally.spark.python_daemon as d; d.IDLE_S, d.CHECK_S = 0.5, 0.1; d.main()"
    threads = "import tally.spark.python_daemon, os; print(len(os.listdir('/proc/self/task')))"
    assert subprocess.check_output([sys.executable, "-c", threads], text=True) == "1\n"
    secret = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "x"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    argv = [sys.executable, "-c", brief, "pyspark.worker"]
    with subprocess.Popen(argv, env=secret, **pipes) as daemon:
        assert daemon.stdout is not None
        port = int.from_bytes(daemon.stdout.read(4), "big")
        with socket.create_connection(("127.0.0.1", port)):  # its worker waits for the secret
            wait_until(lambda: psutil.Process(daemon.pid).children())
            with pytest.raises(subprocess.TimeoutExpired):
                daemon.wait(2)
        assert daemon.wait(60) == 1
