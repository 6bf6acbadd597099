"""Commands whose point is Spark: `tally format try`."""

import json
import os
import subprocess
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.context import spark_reader
from tally.lines.parsing import parse_line_format
from tally.set_up.format_trial import SAMPLE_BYTES
from tests.cli.conftest import LINE, Call
from tests.servers import PROJECT, TALLY
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LOGS = PROJECT / "tests" / "logs"


@pytest.fixture
def ports(spark: SparkSession) -> dict[str, Any]:
    """Commands read with the session of the tests instead of starting and stopping one."""
    return {"read_with": spark_reader, "open_spark": lambda _, **__: nullcontext(spark)}


def configured(toml: str) -> Pipeline:
    (keys,) = tomllib.loads(toml)["pipelines"].values()
    settings = Settings(pipelines={"name": keys})
    return settings.pipeline("name")


@pytest.mark.usefixtures("quiet_java")
def test_the_ready_made_format_of_a_file_is_found(tmp_path: Path) -> None:
    """The best first; its keys can be pasted, and are a pipeline that is right.

    A file needs neither a configuration nor the connector: in an empty folder, with a Spark of the
    program's own, of which stderr has no line.
    """
    done = subprocess.run(
        [TALLY, "format", "try", LOGS / "linux.log", "--json"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith("TALLY_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    best = document["trials"][0]
    assert best["line_format"] == "syslog"
    assert best["understood"] + sum(best["malformed"].values()) == document["lines"] == 10
    assert best["examples"][0]["minute"].endswith("-07-30 14:09:00")
    assert {line["reason"] for line in best["failures"]} == set(best["malformed"])
    assert configured(best["toml"]).format.name == "syslog"
    tried, started = done.stderr.splitlines()
    assert tried.startswith("tried with Spark's defaults: there is no configuration file")
    assert started.startswith("starting Spark on local")


def test_the_newest_records_of_a_topic_are_tried(tally: Call, world: World) -> None:
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


def test_what_no_format_understands_is_shown(tally: Call, world: World, tmp_path: Path) -> None:
    """The format that was asked for is; of JSON with other keys these are named."""
    tally("format", "try", world.topic).ends(2, f"{world.topic} has no lines")
    world.produce(["nothing"], 0)
    text = tally("format", "try", world.topic, "--format", "log4j").stdout
    assert "log4j: 0 of 1 understood" in text
    text = tally("format", "try", world.topic).stdout
    assert "no ready-made format understands any of them; the first is\n  nothing" in text
    file = tmp_path / "shop.log"
    file.write_text('{"when": "2017-07-30 14:09:08", "how bad": "ERROR"}\n', encoding="utf-8")
    text = tally("format", "try", str(file)).stdout
    assert "JSON with the keys when, how bad; name those of time and level" in text
    assert f"tally format try {file} --field time=when --field level=… --time-format" in text
    file.write_text("2017-07-30 14:09:08 ERROR [a1]\n", encoding="utf-8")
    group = r"(?<time>\S+ \S+) (?<level>\w+) \[(?<key>\w+)\]"  # named like what Kafka has
    words = ("--pattern", group, "--time-format", "yyyy-MM-dd HH:mm:ss", "--json")
    (trial,) = tally("format", "try", str(file), *words).document["trials"]
    assert trial["examples"][0]["fields"] == {"level": "ERROR", "key": "a1"}
    line = '2017-07-30 14:09:08.123 UTC [1234] ERROR:  relation "cart" does not exist\n'
    file.write_text(line * 5, encoding="utf-8")
    best, *others = tally("format", "try", str(file), "--json").document["trials"]
    assert (best["line_format"], best["known_levels"]) == ("postgresql", 5)
    assert configured(best["toml"]).levels == ["ERROR"]
    (log4j,) = [trial for trial in others if trial["line_format"] == "log4j"]
    assert (log4j["levels"], tomllib.loads(log4j["toml"])) == ({"UTC": 5}, {})


def test_json_fields_are_tried_and_pasted(tally: Call, tmp_path: Path) -> None:
    """Nested ones and further ones too, and the levels of errors, as they are printed."""
    file = tmp_path / "shop.log"
    line = '{"at": {"when": "2017-07-30 14:09:08"}, "how bad": "error", "shop": "Łódź"}'
    file.write_text(f"{line}\n{'x' * SAMPLE_BYTES}", encoding="utf-8")
    fields = ("time=at.when", "level=how bad", "shop=shop")
    words = ["--time-format", "yyyy-MM-dd HH:mm:ss"]
    words += [word for field in fields for word in ("--field", field)]
    document = tally("format", "try", str(file), *words, "--json").document
    (trial,) = document["trials"]
    assert (document["lines"], trial["understood"]) == (1, 1)
    (example,) = trial["examples"]
    assert example["minute"] == "2017-07-30 14:09:00"
    assert example["fields"] == {"level": "error", "shop": "Łódź"}
    pasted = tomllib.loads(trial["toml"])["pipelines"]["NAME"]
    assert pasted["line_format"]["json"] == dict(field.split("=") for field in fields)
    assert pasted["levels"] == ["error"]


def test_options_are_tried_and_pasted(tally: Call, tmp_path: Path) -> None:
    """And named where they are missing: lines without a level, with offsets of different size."""
    file = tmp_path / "shop.log"
    line = '{"@t":"2017-07-30T14:09:08.1Z"}\n{"@t":"2017-07-30T14:09:08+03:00","@l":"Error"}\n'
    file.write_text(line * 2, encoding="utf-8")
    words = ("--time-format", "yyyy-MM-dd'T'HH:mm:ss", "--field", "time=@t", "--field", "level=@l")
    (trial,) = tally("format", "try", str(file), *words, "--json").document["trials"]
    assert (trial["malformed"], trial["offsets"]) == ({"no-level": 2}, {"+03:00": 2})
    assert "# 2 lines without a level" in trial["toml"]
    words += ("--default-level", "Information")
    (trial,) = tally("format", "try", str(file), *words, "--json").document["trials"]
    assert trial["levels"] == {"Information": 2, "Error": 2}
    assert "# times have different offsets (Z, +03:00)" in trial["toml"]
    words += ("--time", "instant", "--time-zone", "Asia/Tokyo")
    (trial,) = tally("format", "try", str(file), *words, "--json").document["trials"]
    minutes = [example["minute"] for example in trial["examples"]]
    assert minutes[:2] == ["2017-07-30 23:09:00", "2017-07-30 20:09:00"]
    pipeline = configured(trial["toml"])
    assert (pipeline.time, pipeline.format.options.default_level) == ("instant", "Information")
    # What the bytes of a record tell is said.
    file.write_text('\x00\x00\x00\x00\x01{"level":"x"}\n', encoding="utf-8")
    text = tally("format", "try", str(file)).stdout
    assert "1 line may need the option skip_bytes = 5" in text
    sound = '{"time":"2017-07-30T14:09:08Z","level":"ERROR"}'
    lines = (sound, '{"level":"ERROR","x":NaN}', f"\ufeff{sound}", "\tat c.e.Cart", "")
    file.write_text("\n".join(lines), encoding="utf-8")
    best, *_ = tally("format", "try", str(file), "--json").document["trials"]
    assert (best["malformed"], best["continuations"]) == ({"no-match": 3}, 1)
    accepted = {"name": "json", "accept": ["byte_order_mark", "nan"]}
    assert configured(best["toml"]).format == parse_line_format(accepted, key="")
    # All ready-made formats are tried with options; of pairs the fields may be named.
    file.write_text("\x00\x00\x00\x00\x01at=1501423748 level=ERROR\n", encoding="utf-8")
    words = ("--skip-bytes", "5", "--logfmt", "--field", "time=at", "--field", "level=level")
    (trial,) = tally(
        "format", "try", str(file), *words, "--time-format", "epoch_seconds", "--json"
    ).document["trials"]
    assert trial["examples"][0]["minute"] == "2017-07-30 14:09:00"
    file.write_text("\x00\x00\x00\x00\x01ts=2017-07-30T14:09:08Z level=ERROR\n", encoding="utf-8")
    best, *_ = tally("format", "try", str(file), "--skip-bytes", "5", "--json").document["trials"]
    assert configured(best["toml"]).format == parse_line_format(
        {"name": "logfmt", "skip_bytes": 5}, key=""
    )


REFUSED = {
    ("no_such_topic",): "there is no file of that name",
    ("/var/log/no such file.log",): "there is no file of that name",
    ("x", "--format", "nope"): "no such line format",
    ("x", "--format", "log4j", "--pattern", "y"): "one of them",
    ("x", "--field", "time=a", "--pattern", "y"): "one of them",
    ("x", "--field", "time"): "a name and its keys",
    ("x", "--field", "time=a", "--field", "time=b"): "given twice",
    ("x", "--time-format", "epoch_seconds"): "--pattern or --field",
    ("x", "--format", "log4j", "--pipeline", "y"): "one of them",
    ("x", "--pipeline", "y", "--time", "record"): "with --pipeline its own",
    ("x", "--pipeline", "y", "--skip-bytes", "5"): "with --pipeline its own",
    ("x", "--logfmt"): "goes with --field",
    ("x", "--format", "log4j", "--accept", "nan"): "is for lines with JSON",
    ("x", "--format", "log4j", "--time", "instant"): "no offset",
    ("x", "--pipeline", "nope"): "no pipeline 'nope' is configured",
    ("x", "--assume-year", "95"): "a year of four digits",
    ("x", "--pattern", r"\w*\w*x"): "pattern",
}


def test_what_cannot_be_tried_is_refused(tally: Call, tmp_path: Path) -> None:
    """Before Spark is started."""
    endless = tmp_path / "endless.log"
    with endless.open("wb") as file:
        file.truncate(SAMPLE_BYTES + 1)
    refused = REFUSED | {(str(endless),): "no line ends in its first"}
    answers = {words: tally("format", "try", *words, open_spark=None) for words in refused}
    assert [
        (words, answer)
        for words, answer in answers.items()
        if answer.exit_code != 2 or refused[words] not in answer.stderr
    ] == []


def test_what_is_tried_needs_no_pipeline(tally: Call, world: World) -> None:
    """A topic: none, or one that is wrong; it needs to know the servers."""
    world.produce([LINE], 0)
    overlay = world.stack.layout.overlay.read_text(encoding="utf-8")
    for pipelines in ("", "[pipelines.a]\ntopics = []\n"):
        world.config.write_text(f"{overlay}\n{pipelines}", encoding="utf-8")
        answer = tally("format", "try", world.topic, "--format", "fixed", "--json").ends(0)
        assert answer.document["trials"][0]["understood"] == 1
    world.config.write_text("[mysql]\nport = 0\n", encoding="utf-8")
    tally("format", "try", "a-topic").ends(2)
    answer = tally("format", "try", str(LOGS / "access.log"), "--format", "access", "--json")
    answer.ends(0, "tried with Spark's defaults", "mysql.port = 0")
    (trial,) = answer.document["trials"]
    assert trial["understood"] + sum(trial["malformed"].values()) == 10
    assert configured(trial["toml"]).format.name == "access"


def test_a_pipelines_own_rules_are_tried(tally: Call, world: World) -> None:
    table = {"json": {"time": "at.seconds", "level": "severity"}, "time_format": "epoch_seconds"}
    world.configure(line_format=table, time_zone="Asia/Tokyo")
    world.produce(['{"at": {"seconds": 1501423748}, "severity": "ERROR"}', "no JSON"], 0)
    words = ("format", "try", world.topic, "--pipeline", world.name, "--json")
    (trial,) = tally(*words).document["trials"]
    assert trial["examples"][0]["minute"] == "2017-07-30 23:09:00"
    assert (trial["understood"], list(trial["malformed"].values())) == (1, [1])
    pipeline = configured(trial["toml"])
    assert (pipeline.line_format, pipeline.time_zone) == (table, "Asia/Tokyo")
