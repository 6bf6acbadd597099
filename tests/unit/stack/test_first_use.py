"""What `tally up` says at its end, and how Kafka's tools are called."""

from pathlib import Path

import pytest

from tally.config.loading import load_settings
from tally.config.settings import Settings
from tally.errors import UsageError
from tally.model import KafkaSnapshot, PartitionSnapshot, TopicSnapshot
from tally.testing.kafka import FixedKafka
from tally_local.first_use import directions, own_name
from tally_local.kafka_tools import TOOLS, check_reachable, command
from tally_local.stack.credentials import Credentials
from tally_local.stack.server import Part, PartState, PartStatus

PASSWORDS = Credentials()


def settings(folder: Path, **keys: str) -> Settings:
    """A configuration of one pipeline."""
    config = folder / "tally.toml"
    lines = "".join(f"{key} = {value}\n" for key, value in keys.items())
    config.write_text(f'[pipelines.first]\ntopics = ["a-topic"]\n{lines}', encoding="utf-8")
    return load_settings(config)


def running(part: Part, state: PartState = PartState.RUNNING) -> PartStatus:
    """A part of the stack."""
    log = Path("log")
    return PartStatus(part=part, state=state, address=f"at-{part}", pid=1, log=log, log_tail=())


def said(settings: Settings, *parts: PartStatus) -> list[str]:
    """The lines."""
    return list(directions(settings, parts, PASSWORDS, "./tally"))


def test_all_that_runs_is_named_with_user_and_password(tmp_path: Path) -> None:
    """And the commands that count a first line, with the pipeline's own topic and level."""
    lines = said(settings(tmp_path, levels='["WARN"]'), *map(running, Part))
    assert any("at-airflow" in line and PASSWORDS.airflow_admin in line for line in lines)
    assert any("at-mysql" in line and PASSWORDS.mysql_tally in line for line in lines)
    assert any("at-kafka" in line for line in lines)
    first = lines.index("") + 1
    assert " WARN a first line' | ./tally kafka console-producer --topic a-topic" in lines[first]
    assert lines[first + 1 : first + 3] == [
        "       ./tally run --all",
        "       ./tally counts first",
    ]
    assert "./tally airflow cli dags unpause first " in lines[first + 3]
    assert "./tally airflow cli dags unpause first_audit " in lines[first + 4]


@pytest.mark.parametrize(
    "keys", [{"line_format": '"json"'}, {"filter": '{ text = ["*x*"] }'}], ids=["format", "filter"]
)
def test_lines_that_are_not_known_come_from_a_file(tmp_path: Path, keys: dict[str, str]) -> None:
    """No example is made up for them."""
    lines = said(settings(tmp_path, **keys), running(Part.KAFKA), running(Part.MYSQL))
    assert any(line.endswith("console-producer --topic a-topic < A_LOG_FILE") for line in lines)


def test_a_pipeline_that_is_disabled_takes_nothing_away(tmp_path: Path) -> None:
    """The commands are those of one that is right."""
    config = tmp_path / "tally.toml"
    wrong = '[pipelines.a]\ntopics = ["x"]\nlevel = "?"\n'
    config.write_text(f'{wrong}[pipelines.b]\ntopics = ["y"]\n', encoding="utf-8")
    lines = said(load_settings(config), *map(running, Part))
    assert any(line.endswith("console-producer --topic y") for line in lines)
    assert any("./tally counts b" in line for line in lines)


def test_what_does_not_run_is_not_named(tmp_path: Path) -> None:
    """Without both Kafka and MySQL there is nothing to do next."""
    crashed = running(Part.MYSQL, PartState.CRASHED)
    assert said(settings(tmp_path), running(Part.KAFKA), crashed) == ["Kafka:   at-kafka"]


def test_the_program_is_called_as_this_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name if PATH leads to it; a path with a blank is quoted."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    program = folder / "tally"
    program.touch(mode=0o755)
    assert own_name([str(program)], str(folder)) == "tally"
    monkeypatch.chdir(folder)
    assert own_name([str(program)], "/nowhere") == "tally"
    monkeypatch.chdir(tmp_path)
    assert own_name([str(program)], "/nowhere") == "'a checkout/tally'"
    monkeypatch.chdir("/")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert own_name([str(program)], "/nowhere") == f"'{program}'"


@pytest.mark.parametrize("topic", [["--topic", "alog"], ["--topic=alog"]])
@pytest.mark.parametrize("tool", ["console-producer", "console-consumer"])
def test_a_tool_of_kafka_does_not_wait_for_a_topic_that_is_not_there(
    tool: str, topic: list[str]
) -> None:
    """It would wait without a word. Other brokers than the configured ones are not asked."""
    held = PartitionSnapshot(earliest=0, end=0)
    there = TopicSnapshot(topic_id="id", partitions={0: held})
    empty = FixedKafka(KafkaSnapshot(cluster_id="c", topics={}))
    check_reachable(FixedKafka(KafkaSnapshot(cluster_id="c", topics={"alog": there})), tool, topic)
    with pytest.raises(UsageError, match="Kafka has no topic alog") as refused:
        check_reachable(empty, tool, topic)
    assert refused.value.next_step == "tally kafka topics --create --topic alog --partitions 4"
    check_reachable(empty, tool, [*topic, "--bootstrap-server", "there:1"])
    check_reachable(empty, "topics", ["--create", *topic])
    check_reachable(empty, tool, ["--help"])


@pytest.mark.parametrize(
    ("arguments", "servers"),
    [
        (["--list"], ["--bootstrap-server", "here:1"]),
        (["--bootstrap-server", "there:2", "--list"], []),
        (["--bootstrap-server=there:2"], []),
    ],
)
def test_a_tool_of_kafka_gets_the_brokers_unless_others_are_named(
    arguments: list[str], servers: list[str]
) -> None:
    """All other arguments are the tool's own."""
    words = command("topics", arguments, servers="here:1", jars=Path("/jars of kafka"))
    where = words.index(TOOLS["topics"])
    assert words[where + 1 :] == [*servers, *arguments]
    assert words[where - 1] == "/jars of kafka/*"
