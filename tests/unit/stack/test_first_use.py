"""What `tally up` says at its end, and how Kafka's tools are called."""

import shlex
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.fakes import FixedKafka
from tests.unit.stack.test_start import StandIn
from tests.unit.values import kafka

from tally.config.loading import load_settings
from tally.errors import UsageError
from tally_local.cli import TOOLS, check_reachable, command_line
from tally_local.first_use import directions, own_name, telling_what_runs
from tally_local.stack.home import Credentials
from tally_local.stack.server import Part, PartState, PartStatus
from tally_local.stack.stack import Stack

FIRST = '[pipelines.first]\ntopics = ["a-topic"]\n'


def running(part: Part, state: PartState = PartState.RUNNING) -> PartStatus:
    return PartStatus(part=part, state=state, address=f"at-{part}", pid=1)


def said(folder: Path, text: str, *parts: PartStatus) -> list[str]:
    config = folder / "tally.toml"
    config.write_text(text, encoding="utf-8")
    credentials = folder / "a folder" / "credentials.json"
    return list(directions(load_settings(config), parts, credentials, "./tally"))


def test_all_that_runs_is_named_with_its_user(tmp_path: Path) -> None:
    """And the commands that count a first line, with the pipeline's own topic and level."""
    lines = said(tmp_path, f'{FIRST}levels = ["WARN"]\n', *map(running, Part))
    assert "Airflow: at-airflow  user admin" in lines
    assert "MySQL:   at-mysql  user tally, database tally" in lines
    assert "Kafka:   at-kafka" in lines
    assert "Spark:   at-spark" in lines
    first = lines.index("") + 1
    assert " WARN a first line' | ./tally kafka console-producer --topic a-topic" in lines[first]
    assert lines[first + 1] == "       ./tally run --all"
    assert lines[first + 2] == "       ./tally counts first"
    assert "./tally airflow cli dags unpause first " in lines[first + 3]
    assert "./tally airflow cli dags unpause first_audit " in lines[first + 4]


def test_passwords_are_shown_by_a_command_alone(tmp_path: Path) -> None:
    """It can be pasted, and shows those of the servers that run: a log or a screen has none."""
    credentials = Credentials.of(tmp_path / "a folder" / "credentials.json")
    lines = said(tmp_path, FIRST, running(Part.AIRFLOW), running(Part.SPARK))
    assert not [secret for secret in asdict(credentials).values() if secret in "\n".join(lines)]
    (command,) = [line.partition(":  ")[2] for line in lines if line.startswith("passwords")]
    shown = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True).stdout
    assert f'"airflow_admin": "{credentials.airflow_admin}"' in shown
    assert f'"spark_token": "{credentials.spark_token}"' in shown
    assert len(shown.splitlines()) == 2


def test_lines_of_an_unknown_kind_come_from_a_file(tmp_path: Path) -> None:
    """No example is made up for another format, or for a filter."""
    for key in ('line_format = "json"\n', 'filter = { text = ["*x*"] }\n'):
        lines = said(tmp_path, FIRST + key, running(Part.KAFKA), running(Part.MYSQL))
        assert any(line.endswith("console-producer --topic a-topic < A_LOG_FILE") for line in lines)
    wrong = '[pipelines.a]\ntopics = ["x"]\nlevel = "?"\n'
    lines = said(tmp_path, f'{wrong}[pipelines.b]\ntopics = ["y"]\n', *map(running, Part))
    assert any(line.endswith("console-producer --topic y") for line in lines)
    assert any("./tally counts b" in line for line in lines)


def test_what_does_not_run_is_not_named(tmp_path: Path) -> None:
    """Without both Kafka and MySQL there is nothing to do next."""
    crashed = running(Part.MYSQL, PartState.CRASHED)
    assert said(tmp_path, FIRST, running(Part.KAFKA), crashed) == ["Kafka:   at-kafka"]


def test_a_start_that_is_stopped_says_what_it_has_left_running(tmp_path: Path) -> None:
    """And how to stop it; where nothing was started there is nothing to say."""
    told: list[str] = []
    stack = Stack(project=tmp_path, servers=lambda _: StandIn())

    def stopped() -> None:
        with telling_what_runs(stack, told.append, "./tally"):
            raise KeyboardInterrupt

    for start in (list[Part](), [Part.MYSQL]):
        stack.up(start)
        with pytest.raises(KeyboardInterrupt):
            stopped()
    stack.down()
    assert told == ["still running: mysql; ./tally up continues, ./tally down stops them"]


def test_the_program_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name if PATH leads to it; a path with a blank is quoted."""
    folder, other = tmp_path / "a checkout", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    program = folder / "tally"
    program.touch(mode=0o755)
    assert own_name([str(program)], str(folder)) == "tally"
    names = {folder: "tally", tmp_path: "'a checkout/tally'", other: f"'{program}'"}
    for where, name in names.items():
        monkeypatch.chdir(where)
        assert own_name([str(program)], "/nowhere") == name


def test_a_tool_of_kafka_does_not_wait_for_a_topic_that_is_not_there() -> None:
    """It would wait without a word. Other brokers than the configured ones are not asked."""
    there, empty = FixedKafka(kafka((0, 0))), FixedKafka(kafka())
    for tool in ("console-producer", "console-consumer"):
        for topic in (["--topic", "alog"], ["--topic=alog"]):
            check_reachable(there, tool, topic)
            with pytest.raises(UsageError, match="Kafka has no topic alog") as refused:
                check_reachable(empty, tool, topic)
            create = "tally kafka topics --create --topic alog --partitions 4"
            assert refused.value.next_step == create
            check_reachable(empty, tool, [*topic, "--bootstrap-server", "there:1"])
            check_reachable(empty, "topics", ["--create", *topic])
        check_reachable(empty, tool, ["--help"])
        check_reachable(empty, tool, [])  # the tool says what it needs


def test_a_tool_of_kafka_gets_the_brokers_unless_others_are_named() -> None:
    """All other arguments are the tool's own."""
    for arguments, servers in (
        (["--list"], ["--bootstrap-server", "here:1"]),
        (["--bootstrap-server", "there:2", "--list"], []),
        (["--bootstrap-server=there:2"], []),
        ([], ["--bootstrap-server", "here:1"]),
    ):
        words = command_line("topics", arguments, servers="here:1", jars=Path("/jars of kafka"))
        where = words.index(TOOLS["topics"])
        assert words[where + 1 :] == [*servers, *arguments]
        assert words[where - 1] == "/jars of kafka/*"
