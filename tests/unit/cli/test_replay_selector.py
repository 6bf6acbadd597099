"""The options that select what to reprocess: one way at a time, complete, with valid values."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.unit.values import P0, span

from tally.cli.options import MINUTE as A_MINUTE
from tally.cli.options import RANGE, TIME
from tally.cli.replay_selector import Selected, read_request, selector_options
from tally.cli.tree import cli
from tally.errors import EXIT_USAGE, ReplayRefusedError, UsageError
from tally.planning import replay_request as requests

AT = datetime(2026, 11, 20, 14, 5, tzinfo=UTC)
LATER = datetime(2026, 11, 20, 15, 5, tzinfo=UTC)
MINUTE = "2026-11-20 14:05"
LAST = "2026-11-20 14:20"


def selector(*words: str) -> Selected:
    """What a command line selects."""

    @click.command()
    @selector_options
    def command(**given: Any) -> Selected:
        return given

    found: Selected = command.main(list(words), standalone_mode=False)
    return found


def test_each_way_to_say_it_is_understood() -> None:
    """An offset 0 is an offset, and a time of any zone is a time."""
    times = ("--since", "2026-11-20T14:05:00Z", "--before", "2026-11-20T17:05+02:00")
    for words, request in (
        (("--all",), requests.BoundsAsked()),
        (("--topic", "alog"), requests.BoundsAsked(topic="alog")),
        (("--from", "0"), requests.BoundsAsked(from_offset=0)),
        (
            ("--partition", "3", "--partition", "5", "--until", "9"),
            requests.BoundsAsked(partitions=(3, 5), until_offset=9),
        ),
        (("--range", "alog/3:300-310"), requests.RangesAsked(ranges=(span(300, 310, 3),))),
        (("--batch", "42"), requests.BatchAsked(batch_id=42)),
        (("--minute", MINUTE), requests.MinutesAsked(first=MINUTE, last=MINUTE)),
        (("--minute", MINUTE, "--to-minute", LAST), requests.MinutesAsked(first=MINUTE, last=LAST)),
        (
            (*times, "--topic", "alog", "--partition", "3"),
            requests.TimesAsked(since=AT, before=LATER, topic="alog", partitions=(3,)),
        ),
    ):
        assert read_request(selector(*words)) == request, words


def test_files_give_each_partition_its_own_bounds(tmp_path: Path) -> None:
    """A topic beside them chooses among their partitions."""
    file = tmp_path / "before.csv"
    file.write_text("alog,0,300\nother,0,7\n")
    asked = read_request(selector("--from-file", str(file), "--topic", "alog"))
    assert isinstance(asked, requests.BoundsAsked)
    assert asked.from_offsets[P0] == 300
    assert asked.until_offsets == {}
    assert asked.chosen == [P0]


def test_nothing_half_a_way_and_two_ways_at_once_are_refused() -> None:
    """The error names the two options; nothing said is not everything."""
    with pytest.raises(UsageError) as raised:
        read_request(selector())
    assert "--all is everything that can be reprocessed" in raised.value.next_step
    since = ("--since", "2026-11-20T14:05Z")
    for words, text in (
        (("--all", "--topic", "alog"), "--all and --topic are two ways"),
        (("--batch", "42", "--from", "3"), "--batch and --from are two ways"),
        (("--range", "alog/3:300-310", "--partition", "3"), "--range and --partition are"),
        (("--minute", MINUTE, "--batch", "3"), "--batch and --minute are two ways"),
        (("--from-file", "f", "--until", "3"), "--from-file and --until are two ways"),
        ((*since, "--from", "3"), "--since and --from are two ways"),
        (since, "--since needs --before"),
        (("--before", "2026-11-20T14:05Z"), "--before needs --since"),
        (("--to-minute", MINUTE), "--to-minute needs --minute"),
    ):
        with pytest.raises(UsageError, match=text):
            read_request(selector(*words))
    for wrong in ({"since": LATER, "before": AT}, {"since": LATER, "before": LATER}):
        with pytest.raises(ReplayRefusedError, match="is not before"):
            read_request(wrong)
    with pytest.raises(ReplayRefusedError, match="is after"):
        read_request({"minute": LAST, "to_minute": MINUTE})


def test_what_is_no_range_no_time_and_no_minute_is_shown_how_one_looks() -> None:
    """Ranges are half-open, a zone is never guessed, a minute is padded so that it sorts."""
    zones = "write it as 2026-11-20T14:05:00Z for UTC, or as 2026-11-20T14:05:00+02:00"
    for read, text, told in (
        (RANGE, "alog/3", "alog/0:300-310"),
        (RANGE, "alog/3:310-300", "is not smaller than"),
        (RANGE, "alog/3:300-300", "is not smaller than"),
        (RANGE, "alog/3:-1-2", "alog/0:300-310"),
        (TIME, MINUTE, zones),
        (TIME, "yesterday", "is not a time"),
        (A_MINUTE, "2026-11-20T14:05Z", "'2026-11-20 14:05'"),
        (A_MINUTE, "2026-11-20", "'2026-11-20 14:05'"),
        (A_MINUTE, "2026-13-01 00:00", "'2026-11-20 14:05'"),
    ):
        with pytest.raises(click.BadParameter) as refused:
            read(text)
        assert told in refused.value.message
    assert A_MINUTE(" 2026-1-2 3:04 ") == "2026-01-02 03:04"


def test_a_wrong_request_is_told_before_anything_is_asked() -> None:
    """Exit code 2 without a configuration or a server."""
    confirmed = "usage: this needs a confirmation, which --json cannot ask for"
    for words, text in (
        (["--all"], "usage: say why with --reason"),
        (["--all", "--reason", "r", "--json"], confirmed),
        (["--resume", "1", "--all"], "--resume takes no --all: leave it out"),
        (["--resume", "1", "--cancel", "2"], "--resume takes no --cancel: leave it out"),
        (["--resume", "1", "--reason", "r"], "--resume takes no --reason: leave it out"),
        (["p", "--resume", "1"], "--resume takes no PIPELINE: leave it out"),
        (
            ["--cancel", "1", "--batch", "2", "--reason", "r"],
            "--cancel takes no --batch: leave it out",
        ),
        (["--since", MINUTE], "Invalid value for '--since'"),
    ):
        result = CliRunner().invoke(cli, ["replay", *words])
        assert (result.exit_code, text in result.stderr) == (EXIT_USAGE, True), words
