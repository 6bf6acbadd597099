"""`tally format try`: what formats make of a topic or a file, before one is configured."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tally.app.format_trial import SAMPLE_BYTES
from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tests.cli.conftest import LINE, Call
from tests.conftest import PROJECT
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.usefixtures("lent_spark")]

LOGS = PROJECT / "tests" / "logs"


def configured(toml: str) -> Pipeline:
    """The pipeline that the keys to paste make."""
    (keys,) = tomllib.loads(toml)["pipelines"].values()
    settings = Settings(pipelines={"name": keys})
    return settings.pipeline("name")


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("linux", "syslog"),
        ("spark", "spark"),
        ("openstack", "openstack"),
        ("zookeeper", "zookeeper"),
        ("access", "access"),
    ],
)
def test_the_ready_made_format_of_a_file_is_found(tally: Call, log: str, name: str) -> None:
    """The best first; its keys can be pasted, and are a pipeline that is right."""
    answer = tally("format", "try", str(LOGS / f"{log}.log"), "--json")
    assert answer.exit_code == 0, answer.stderr
    best = answer.document["trials"][0]
    assert best["line_format"] == name
    assert best["understood"] + sum(best["malformed"].values()) == answer.document["lines"] == 10
    assert best["examples"][0]["minute"].endswith("-07-30 14:09:00")
    assert {line["reason"] for line in best["failures"]} == set(best["malformed"])
    assert configured(best["toml"]).format.name == name


def test_the_newest_records_of_a_topic_are_tried(tally: Call, world: World) -> None:
    """With a pattern of one's own; what it does not understand is shown with the reason."""
    world.produce(["older"] * 5, 0)
    world.produce([LINE, "2017-07-30 14:10:00 WARN [cart] late", "nothing", None], 0)
    pattern = r"(?<time>\S+ \S+) (?<level>[A-Z]+)(?: \[(?<service>\w+)\])?"
    options = ("--pattern", pattern, "--time-format", "yyyy-MM-dd HH:mm:ss", "--lines", "4")
    (trial,) = tally("format", "try", world.topic, *options, "--json").document["trials"]
    assert (trial["line_format"], trial["understood"]) == ("custom", 2)
    assert trial["malformed"] == {"no-match": 1, "null-value": 1}
    assert trial["levels"] == {"ERROR": 1, "WARN": 1}
    assert "levels" not in trial["toml"]
    assert '# continuation_lines = "unmatched"  # for 1 line' in trial["toml"]
    assert trial["examples"][1]["fields"] == {"level": "WARN", "service": "cart"}
    assert configured(trial["toml"]).format.pattern == pattern
    text = tally("format", "try", world.topic, *options).stdout
    assert "custom: 2 of 4 understood" in text
    assert "      2017-07-30 14:10  level=WARN  service=cart" in text
    assert "malformed, no-match: 1 line, such as\n  nothing" in text
    assert 'continuation_lines = "unmatched" leaves 1 of them out' in text


def test_a_format_that_understands_nothing_says_why(tally: Call, world: World) -> None:
    """It was asked for, so it is shown; without a name there is none to show."""
    world.produce(["nothing"], 0)
    text = tally("format", "try", world.topic, "--format", "log4j").stdout
    assert "log4j: 0 of 1 understood" in text
    text = tally("format", "try", world.topic).stdout
    assert "no ready-made format understands any of them; the first is\n  nothing" in text


def test_json_with_other_keys_names_them(tally: Call, tmp_path: Path) -> None:
    """And how the configuration says where time and level are."""
    file = tmp_path / "shop.log"
    file.write_text('{"when": "2017-07-30 14:09:08", "how bad": "ERROR"}\n', encoding="utf-8")
    text = tally("format", "try", str(file)).stdout
    assert "JSON with the keys when, how bad; name those of time and level" in text
    assert f"tally format try {file} --field time=… --field level=…" in text


def test_json_fields_are_tried_and_pasted(tally: Call, tmp_path: Path) -> None:
    """Nested ones and further ones too, as the configuration would have them."""
    file = tmp_path / "shop.log"
    file.write_text(
        '{"at": {"when": "2017-07-30 14:09:08"}, "how bad": "ERROR", "shop": "Łódź"}\n',
        encoding="utf-8",
    )
    fields = ("time=at.when", "level=how bad", "shop=shop")
    words = ["--time-format", "yyyy-MM-dd HH:mm:ss"]
    words += [word for field in fields for word in ("--field", field)]
    (trial,) = tally("format", "try", str(file), *words, "--json").document["trials"]
    assert trial["understood"] == 1
    (example,) = trial["examples"]
    assert example["minute"] == "2017-07-30 14:09:00"
    assert example["fields"] == {"level": "ERROR", "shop": "Łódź"}
    pasted = tomllib.loads(trial["toml"])["pipelines"]["NAME"]
    assert pasted["line_format"]["json"] == dict(field.split("=") for field in fields)


def test_of_a_file_no_more_is_read_than_a_sample_holds(tally: Call, tmp_path: Path) -> None:
    """Its whole lines; a file in which no line ends has none."""
    endless, long = tmp_path / "endless.log", tmp_path / "long.log"
    with endless.open("wb") as file:
        file.truncate(SAMPLE_BYTES + 1)
    long.write_bytes(LINE.encode() + b"\n" + b"x" * SAMPLE_BYTES)
    answer = tally("format", "try", str(endless))
    assert answer.exit_code == 2
    assert "no line ends in its first" in answer.stderr
    assert tally("format", "try", str(long), "--json").document["lines"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no_such_topic",), "there is no file of that name"),
        (("/var/log/no such file.log",), "there is no file of that name"),
        (("x", "--format", "nope"), "no such line format"),
        (("x", "--format", "log4j", "--pattern", "y"), "one of them"),
        (("x", "--field", "time=a", "--pattern", "y"), "one of them"),
        (("x", "--field", "time"), "a name and its keys"),
        (("x", "--field", "time=a", "--field", "time=b"), "given twice"),
        (("x", "--time-format", "epoch_seconds"), "--pattern or --field"),
        (("x", "--format", "log4j", "--pipeline", "y"), "one of them"),
        (("x", "--pipeline", "y", "--time", "record"), "with --pipeline its own"),
        (("x", "--pipeline", "nope"), "no pipeline 'nope' is configured"),
        (("x", "--format", "log4j", "--time-zone", "Europe/Berlin"), "never shifted"),
        (("x", "--assume-year", "95"), "a year of four digits"),
        (("x", "--pattern", r"\w*\w*x"), "pattern"),
    ],
)
def test_what_cannot_be_tried_is_refused(tally: Call, words: tuple[str, ...], said: str) -> None:
    """Before Spark is started."""
    answer = tally("format", "try", *words, open_spark=None)
    assert answer.exit_code == 2
    assert said in answer.stderr


def test_a_file_is_tried_without_a_valid_configuration(
    tally: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is said; a topic needs to know the servers."""
    file = str(LOGS / "zookeeper.log")
    none, wrong = tmp_path / "none.toml", tmp_path / "wrong.toml"
    wrong.write_text("[mysql]\nport = 0\n", encoding="utf-8")
    for path, said in ((none, "no configuration file"), (wrong, "mysql.port = 0")):
        monkeypatch.setenv("TALLY_CONFIG", str(path))
        answer = tally("format", "try", file, "--json")
        assert answer.document["trials"][0]["line_format"] == "zookeeper"
        assert "tried with Spark's defaults" in answer.stderr
        assert said in answer.stderr
        assert tally("format", "try", "a-topic").exit_code == 2


def test_a_topic_is_tried_before_there_is_a_pipeline(tally: Call, world: World) -> None:
    """Or while all of them are wrong."""
    world.produce([LINE], 0)
    for pipelines in ({}, {"a": {"topics": []}}):
        overlay = world.stack.overlay.read_text(encoding="utf-8")
        tables = [
            f"[pipelines.{name}]\ntopics = {keys['topics']}\n" for name, keys in pipelines.items()
        ]
        world.config.write_text("\n".join([overlay, *tables]), encoding="utf-8")
        answer = tally("format", "try", world.topic, "--format", "fixed", "--json")
        assert answer.exit_code == 0, answer.stderr
        assert answer.document["trials"][0]["understood"] == 1


def test_a_pipelines_own_rules_are_tried(tally: Call, world: World) -> None:
    """Its table of fields and its time's keys, which options alone could not say."""
    table = {"json": {"time": "at.seconds", "level": "severity"}, "time_format": "epoch_seconds"}
    world.configure(line_format=table, time_zone="Asia/Tokyo")
    world.produce(['{"at": {"seconds": 1501423748}, "severity": "ERROR"}', "no JSON"], 0)
    words = ("format", "try", world.topic, "--pipeline", world.name, "--json")
    (trial,) = tally(*words).document["trials"]
    assert trial["examples"][0]["minute"] == "2017-07-30 23:09:00"
    assert (trial["understood"], list(trial["malformed"].values())) == (1, [1])
    pipeline = configured(trial["toml"])
    assert (pipeline.line_format, pipeline.time_zone) == (table, "Asia/Tokyo")


def test_an_empty_topic_has_nothing_to_try(tally: Call, world: World) -> None:
    """Named, with what to do."""
    answer = tally("format", "try", world.topic)
    assert answer.exit_code == 2
    assert f"{world.topic} has no lines" in answer.stderr


def test_the_levels_to_configure_are_those_of_errors(tally: Call, tmp_path: Path) -> None:
    """As they are printed; a sample without errors says nothing about them."""
    file = tmp_path / "app.json"
    for levels, toml in (("info", ""), ("info error", 'levels = ["error"]')):
        lines = [f'{{"time":"2017-07-30T14:09:08Z","level":"{level}"}}' for level in levels.split()]
        file.write_text("\n".join(lines), encoding="utf-8")
        (trial,) = tally("format", "try", str(file), "--format", "json", "--json").document[
            "trials"
        ]
        assert ("levels" in trial["toml"], toml in trial["toml"]) == (bool(toml), True)


def test_a_file_needs_neither_a_configuration_nor_the_connector(tmp_path: Path) -> None:
    """In an empty folder, with a Spark of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TALLY_")}
    done = subprocess.run(
        [
            Path(sys.executable).with_name("tally"),
            *("format", "try", LOGS / "zookeeper.log", "--format", "zookeeper", "--json"),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (trial,) = json.loads(done.stdout)["trials"]
    assert trial["understood"] + sum(trial["malformed"].values()) == 10
    assert trial["understood"] > trial["malformed"].get("no-match", 0)
