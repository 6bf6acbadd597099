"""The settings of Spark: a master, or a Spark Connect address and its token."""

from pathlib import Path
from typing import Any

import pytest

from tally.config.loading import load_settings
from tally.config.servers import SparkSettings
from tally.errors import ConfigError
from tally.spark.counting import DEAD_LETTER_BYTES_PER_TASK
from tally.spark.driver_log import JAVA_OPTIONS
from tally.spark.session import SESSION_DEFAULTS, THROUGHPUT, reader_options, with_throughput

MINIMAL = '[pipelines.error_log]\ntopics = ["alog"]\n'


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TALLY_CONFIG", raising=False)
    monkeypatch.delenv("TALLY_SECRETS_FILE", raising=False)
    monkeypatch.chdir(tmp_path)


def load(**spark: Any) -> SparkSettings:
    """The section, from a whole configuration."""
    Path("tally.toml").write_text(MINIMAL, encoding="utf-8")
    return load_settings(overrides={"spark": spark}).spark


def test_the_masters_scheme_chooses_the_engine() -> None:
    """The scheme has the same meaning as for Spark."""
    local = ("local[*]", "k8s://https://host:443")
    connect = ("sc://host", "sc://host:15002", "sc://[::1]:15002/")
    for master in (*local, *connect, "sc://host:15002/;use_ssl=true;user_id=ann%20b"):
        assert load(master=master).master == master
        assert load(master=master).is_connect is (master not in local)


def test_a_token_in_the_address_is_moved_where_nothing_shows_it() -> None:
    """The master is logged and printed, so it must not contain the token."""
    for address, left in (
        ("sc://host/;token=s3%3Bcret", "sc://host/"),
        ("sc://host;token=s3%3Bcret", "sc://host"),
        ("sc://h:1/;use_ssl=true;token=s3%3Bcret;user_id=a", "sc://h:1/;use_ssl=true;user_id=a"),
    ):
        spark = load(master=address)
        assert spark.master == left
        assert spark.connect_token.get_secret_value() == "s3;cret"
        assert "s3;cret" not in repr(spark)


def test_the_environment_may_hold_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token can be given like every other secret."""
    monkeypatch.setenv("TALLY_SPARK__CONNECT_TOKEN", "s3cret")
    assert load(master="sc://host").connect_token.get_secret_value() == "s3cret"


def test_records_that_are_gone_are_an_error_of_sparks() -> None:
    """Otherwise Spark would read what is left, with only a warning in its log."""
    Path("tally.toml").write_text(MINIMAL, encoding="utf-8")
    settings = load_settings()
    options = reader_options(settings.kafka, settings.pipeline("error_log"))
    assert options["failOnDataLoss"] == "true"


def test_a_wrong_address_is_refused_without_telling_a_token() -> None:
    """It is refused when the configuration is read, and the error has no token."""
    for master in (
        *("sc://", "sc://host/path", "sc://ann@host", "sc://host:1/;token=s3cret;x"),
        "sc://host/;token=s3cret;token=s3cret",
    ):
        with pytest.raises(ConfigError, match="spark") as caught:
            load(master=master)
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match="spark") as caught:
        load(master="sc://host/;token=s3cret", connect_token="s3cret")  # noqa: S106
    assert "s3cret" not in str(caught.value)


def test_a_task_sends_its_dead_letters_straight_to_the_driver() -> None:
    """By way of the block manager they can get lost on a busy machine, and with them the batch."""
    size = SESSION_DEFAULTS["spark.task.maxDirectResultSize"]
    assert int(size.removesuffix("m")) * 1024 * 1024 >= 2 * DEAD_LETTER_BYTES_PER_TASK


def test_what_a_read_leaves_in_memory_is_dropped_before_it_adds_up() -> None:
    """No later read uses it.

    ``benchmarks.task_size`` shows the heap after sixty reads, ``benchmarks.scaling`` how long 64
    partitions take.
    """
    for cache in ("consumer.cache", "consumer.fetchedData.cache"):
        for key in ("timeout", "evictorThreadRunInterval"):
            milliseconds = SESSION_DEFAULTS[f"spark.kafka.{cache}.{key}"]
            assert 0 < int(milliseconds.removesuffix("ms")) <= 5_000
    assert 0 < int(SESSION_DEFAULTS["spark.kafka.consumer.cache.capacity"]) <= 4


def test_a_collector_that_was_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java does not start with two of them."""
    for own, variable, flags in (
        ("", "", THROUGHPUT),
        ("-Xss4m", "-Dx=y", f"{THROUGHPUT} -Xss4m"),
        ("-XX:+UseG1GC", "", "-XX:+UseG1GC"),
        ("-Xss4m", "-XX:+UseSerialGC", "-Xss4m"),
    ):
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", variable)
        assert with_throughput({JAVA_OPTIONS: own} if own else {})[JAVA_OPTIONS] == flags
