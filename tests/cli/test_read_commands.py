"""`tally status`, `counts`, `batches`, `show` and `dead-letters` on real servers."""

import base64
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from tally.aggregates.aggregate import fingerprint
from tally.cli import cli
from tally.cli.app import App
from tally.planning.replay_request import BoundsAsked
from tally.reading.dead_letters import dead_letters
from tests.cli.conftest import LINE, MINUTE, Call, commit
from tests.fakes import ManualClock
from tests.world import World

pytestmark = pytest.mark.stack


def test_status_sets_the_ledger_beside_kafka(tally: Call, world: World) -> None:
    committed = commit(world, *[LINE] * 3)
    opened = world.planned([LINE] * 5)
    world.produce([LINE] * 2, 1)

    document = tally("status", "--json").document
    first, second = document["partitions"]
    assert (first["next_offset"], first["kafka_end"], first["lag_offsets"]) == (3, 8, 5)
    assert (second["next_offset"], second["kafka_end"], second["lag_offsets"]) == (0, 2, 2)
    assert document["open_batches"][0]["batch_id"] == opened.batch_id
    assert document["last_committed_batch"]["batch_id"] == committed
    assert document["last_committed_batch"]["records"] == 3
    assert document["kafka_answered"] is True

    lines = tally("status").stdout.splitlines()
    assert lines[1].split()[:4] == [f"{world.topic}/0", "3", "8", "5"]
    assert any(f"open batch: {opened.batch_id}" in line for line in lines)
    wide = tally("status", "--wide").stdout.splitlines()
    assert wide[1].split()[:5] == [f"{world.topic}/0", "0", "3", "8", "5"]
    assert wide[1].split()[-1] == first["topic_id"]


def test_status_tells_how_the_tables_grow(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the batches of the last 24 hours: an older one is no part of it."""
    before = datetime.now(UTC) - timedelta(days=2)
    earlier = world.through(database=replace(world.database, clock=ManualClock(before)))
    commit(earlier, LINE)
    commit(world, LINE, LINE.replace("14:09", "14:10"), "no line")
    commit(world, LINE)
    tally("status", "--gib", "1").ends(2, "--growth")
    monkeypatch.setattr("tally.ledger.growth.ROWS_MIN", 10**12)  # other tests fill the tables too
    growth = tally("status", "--growth", "--gib", "1", "--json").ends(0).document["growth"]
    rows = {table["table"]: table["rows_a_day"] for table in growth["tables"]}
    assert rows == {
        "batch": 2,
        "segment": 2,
        "segment_count": 3,
        "dead_letter": 1,
        world.name: 2,
    }
    assert {table["bytes_a_day"] for table in growth["tables"]} == {None}
    assert (growth["bytes_a_day"], growth["days_left"]) == (0, None)
    assert "bytes are not known yet" in tally("status", "--growth").ends(0).stdout
    monkeypatch.setattr("tally.ledger.growth.ROWS_MIN", 0)
    growth = tally("status", "--growth", "--gib", "1", "--json").ends(0).document["growth"]
    assert growth["bytes_a_day"] == sum(table["bytes_a_day"] for table in growth["tables"]) > 0
    left = (2**30 - growth["bytes"]) / growth["bytes_a_day"]
    assert growth["days_left"] == pytest.approx(left, abs=0.1)
    shown = tally("status", "--growth", "--gib", "1").ends(0).stdout
    assert "segment_count" in shown
    assert "1 GiB in " in shown


def test_the_result_is_shown_minute_by_minute(tally: Call, world: World) -> None:
    world.plan()
    for minute in range(12):
        world.execute(
            f"insert into `{world.name}` (log_time, log_count) values (%s, %s)",
            (f"2017-07-30 14:{minute:02d}:00", 1_000 + minute),
        )

    def listed(*options: str) -> list[int]:
        document = tally("counts", *options, "--json").document
        found = [row["log_count"] - 1_000 for row in document["minutes"]]
        assert document["total"] == sum(found) + 1_000 * len(found)
        return found

    assert listed() == list(range(2, 12))
    assert listed("--last", "3") == [9, 10, 11]
    assert listed("--since", "2017-07-30 14:00") == list(range(12))
    assert listed("--since", "2017-07-30 14:03", "--until", "2017-07-30 14:05") == [3, 4, 5]
    assert listed("--until", "2017-07-30 14:05", "--last", "2") == [4, 5]
    assert listed("--since", "2018-01-01 00:00") == []

    world.configure(levels=["ERROR", "WARN"])
    document = tally("counts", "--last", "1", "--json").document
    assert (document["table"], document["levels"]) == (world.name, ["ERROR", "WARN"])
    assert document["fingerprint"] == fingerprint(world.pipeline)
    (minute,) = document["minutes"]
    assert (minute["log_time"], minute["log_count"]) == ("2017-07-30 14:11:00", 1_011)
    assert (minute["rule"], document["outdated"], document["other_offsets"]) == ("today", None, 0)
    assert tally("counts", world.name, "--last", "2").stdout.splitlines() == [
        "MINUTE            LINES  STATE",
        "2017-07-30 14:10  1,010  complete",
        "2017-07-30 14:11  1,011  complete",
        "2 minutes shown, 2,021 lines; --last 20 shows earlier ones",
        "counted now: levels ERROR, WARN; format fixed",
    ]


def test_minutes_under_other_rules_are_told_with_their_replay(tally: Call, world: World) -> None:
    """As far as Kafka holds them; the replay that is named brings them up to date."""
    for minute in (1, 2, 3):
        commit(world, f"2017-07-30 14:0{minute}:00 ERROR x", "2017-07-30 14:09:00 ERROR x")
    before = fingerprint(world.pipeline)
    assert "RULES" not in tally("counts").stdout
    world.configure(levels=["ERROR", "WARN"])
    commit(world, "2017-07-30 14:04:00 WARN x", "2017-07-30 14:09:00 ERROR x")
    world.delete_records(0, before=1)  # the first segment is no longer whole
    document = tally("counts", "--json").document
    rules = {row["log_time"][-5:-3]: row["rule"] for row in document["minutes"]}
    assert rules == {"01": "other", "02": "other", "03": "other", "04": "today", "09": "other"}
    assert document["minutes"][0]["other_fingerprints"] == [before]
    assert document["outdated"] == {
        "minutes": 4,
        "first_minute": "2017-07-30 14:01",
        "last_minute": "2017-07-30 14:09",
        "gone": 2,
        "replayed": 2,
        "replay": f"tally replay {world.name} --minute '2017-07-30 14:02'"
        " --to-minute '2017-07-30 14:03' --reason '…'",
    }
    text = tally("counts").stdout.splitlines()
    assert text[0].split() == ["MINUTE", "LINES", "STATE", "RULES"]
    assert text[1].split() == ["2017-07-30", "14:01", "1", "complete", "other"]
    assert document["other_offsets"] == 6
    assert text[-2] == (
        "4 minutes counted under other rules, 2017-07-30 14:01 to 2017-07-30 14:09; Kafka no longer"
        " holds all records of 2 of them; 2 minutes can be brought up to date with:"
        f" {document['outdated']['replay']}"
    )
    assert text[-1] == (
        "6 offsets in all are counted under other rules, so minutes may lack lines that today's "
        "rules count; 2 of them can no longer be replayed; what Kafka still holds can be brought "
        f"up to date: tally replay {world.name} --all --dry-run"
    )
    words = shlex.split(document["outdated"]["replay"])[1:]
    assert tally(*words, "--reason", "a test", "--yes").exit_code == 0
    after = tally("counts", "--json").document
    rules = {row["log_time"][-5:-3]: row["rule"] for row in after["minutes"]}
    assert rules == {"01": "other", "02": "today", "03": "today", "04": "today", "09": "other"}
    assert after["outdated"]["replay"] is None
    assert after["other_offsets"] == 2
    assert "Kafka no longer holds all records of any of them" in tally("counts").stdout


def test_offsets_without_a_line_under_other_rules_are_told(tally: Call, world: World) -> None:
    """No minute shows them: the other rules have counted nothing there. Their replay counts it."""
    commit(world, *["2017-07-30 14:01:00 WARN x"] * 3)
    world.configure(levels=["ERROR", "WARN"])
    commit(world, "2017-07-30 14:01:00 ERROR x")
    document = tally("counts", "--json").document
    assert [(row["log_count"], row["rule"]) for row in document["minutes"]] == [(1, "today")]
    assert (document["outdated"], document["other_offsets"]) == (None, 3)
    assert f"tally replay {world.name} --all --dry-run" in tally("counts").stdout
    other = f"{world.name}_b"
    world.create_topic(1, other)
    world.configure(topics=[other])
    document = tally("counts", "--json").document
    assert (document["other_offsets"], document["other_offsets_gone"]) == (3, 0)
    assert tally("replay", world.name, "--all", "--reason", "a test", "--yes").exit_code == 0
    after = tally("counts", "--json").document
    assert [row["log_count"] for row in after["minutes"]] == [4]
    assert (after["other_offsets"], after["other_offsets_gone"]) == (0, 0)


def test_no_replay_is_offered_for_what_kafka_has_deleted(tally: Call, world: World) -> None:
    """The rules of folded lines are unknown: their segments are forgotten."""
    for level in ("WARN", "ERROR"):
        commit(world, *[f"2017-07-30 14:01:00 {level} x"] * 3)
    world.configure(levels=["ERROR", "WARN"])
    world.delete_records(0, before=6)
    assert tally("counts", "--json").document["other_offsets_gone"] == 6
    text = " ".join(tally("counts").stdout.split())
    assert "they can no longer be replayed" in text
    assert "tally replay" not in text
    assert tally("prune", world.name, "--older-than", "0h").exit_code == 0
    document = tally("counts", "--json").document
    assert [row["rule"] for row in document["minutes"]] == ["unknown"]
    assert (document["outdated"], document["other_offsets"]) == (None, 0)
    assert "unknown: the minute has lines of pruned segments" in tally("counts").stdout


def test_what_does_not_exist_is_a_wrong_request(tally: Call) -> None:
    for command in ("show", "run"):
        answer = tally(command, "4000000000", "--json").ends(2)
        assert answer.document["error"]["code"] == "batch-unknown"
    tally("counts", "--since", "yesterday").ends(
        2, "'yesterday' is not a minute; write it as '2026-11-20 14:05'"
    )


def test_batches_are_listed_newest_first_and_shown(tally: Call, world: World) -> None:
    """By state, and with a limit."""
    world.produce([LINE] * 2, 0)
    first = commit(world, *[LINE] * 2, partition=1)
    second = commit(world, *[LINE] * 2)
    opened = world.planned([LINE] * 2)

    def listed(*options: str) -> list[int]:
        found = tally("batches", *options, "--json").document["batches"]
        return [batch["batch_id"] for batch in found]

    assert listed() == [opened.batch_id, second, first]
    assert listed("--state", "committed", "--limit", "1") == [second]
    assert listed("--state", "abandoned") == []
    table = tally("batches").stdout.splitlines()
    assert len(table) == 4
    assert table[1].split()[:3] == [str(opened.batch_id), "ingest", "planned"]

    document = tally("show", str(first), "--json").document
    assert (document["state"], document["attempt"], document["records"]) == ("committed", 1, 4)
    ranges = [(r["partition"], r["records"], r["state"]) for r in document["ranges"]]
    assert ranges == [(0, 2, "live"), (1, 2, "live")]
    assert document["minutes_touched"] == 1
    assert document["minutes"] == [{"log_time": MINUTE, "log_count": 4}]
    text = tally("show", str(first)).stdout
    assert f"batch         {first}, ingest of {world.name}" in text
    assert "1 of 1 minute shown" in text
    assert f", rules {fingerprint(world.pipeline)}" in text
    document = tally("show", str(first), "--minutes", "0", "--json").document
    assert (document["minutes"], document["minutes_touched"]) == ([], 1)

    def state(number: int) -> tuple[str, int]:
        told = tally("batches", "--json").document["batches"]
        (superseded,) = [b["superseded"] for b in told if b["batch_id"] == number]
        (row,) = [r for r in tally("batches").stdout.splitlines() if r.split()[0] == str(number)]
        return [cell.strip() for cell in row.split("  ") if cell.strip()][2], superseded

    assert state(first) == ("committed", 0)
    for partition, replaced in ((0, "partly replaced"), (1, "replaced")):
        asked = BoundsAsked(partitions=(partition,), until_offset=2)
        (batch_id,) = world.ask_replay(asked).batch_ids
        world.run(batch_id)
        assert state(first) == (f"committed, {replaced}", partition + 1)
        assert state(batch_id) == state(second) == ("committed", 0)
    assert "state         committed, replaced, attempt 1" in tally("show", str(first)).stdout


def test_dead_letters_are_exact_and_cannot_reach_the_terminal(tally: Call, world: World) -> None:
    """Exact in JSON, escaped in text, by batch and by reason; only those of live segments."""
    world.produce([LINE] * 3 + [b"\x1b[2J\xff", "second"], 0)
    first = commit(world, "in the other partition", partition=1)
    second = commit(world, *[LINE] * 4, "third")

    document = tally("dead-letters", "--batch", str(first), "--json").document
    letters = {(x["partition"], x["offset"]): x for x in document["dead_letters"]}
    assert sorted(letters) == [(0, 3), (0, 4), (1, 0)]
    assert base64.b64decode(letters[0, 3]["value_base64"]) == b"\x1b[2J\xff"

    text = tally("dead-letters").stdout
    assert "\x1b" not in text
    assert "\\x1b[2J\\xff" in text
    batches = [line.split()[0] for line in text.splitlines()[1:]]
    assert batches == [str(second), *[str(first)] * 3]
    assert tally("dead-letters", "--reason", "no-level").stdout.splitlines()[1:] == ["none"]
    minute = document["dead_letters"][0]["log_time"]
    assert tally("dead-letters", "--minute", minute).stdout.count("\n") > 1
    assert tally("dead-letters", "--minute", "2001-01-01 00:00").stdout.splitlines()[1:] == ["none"]
    tally("dead-letters", "--reason", "other").ends(2, "'no-level'")
    cut = tally("dead-letters", "--limit", "1").stdout.splitlines()
    assert cut[2:] == ["1 shown, there may be more: --limit N"]
    assert "there may be more" not in text

    def page(skip: int) -> tuple[int, int, int]:
        (one,) = dead_letters(world.context(), world.name, skip=skip, limit=1).dead_letters
        return one.batch_id, one.partition.partition, one.offset

    listed = tally("dead-letters", "--limit", "4", "--json").document["dead_letters"]
    pages = [page(skip) for skip in range(4)]
    assert pages == [(one["batch_id"], one["partition"], one["offset"]) for one in listed]
    assert len(set(pages)) == 4

    world.execute(
        "update segment s join batch b using (batch_id) set s.state = 'superseded',"
        " s.superseded_by = s.segment_id where b.pipeline = %s",
        (world.name,),
    )
    assert tally("dead-letters", "--json").document["dead_letters"] == []


def test_dead_letters_are_found_by_partition_and_text(tally: Call, world: World) -> None:
    first = commit(world, *[LINE] * 3, "a needle, here", "hay")
    place = f"{world.topic}/0"

    def found(*words: str) -> list[int]:
        letters = tally("dead-letters", *words, "--json").document["dead_letters"]
        return [letter["offset"] for letter in letters]

    assert found("--partition", place) == [3, 4]
    assert found("--partition", f"{world.topic}/1") == []
    assert found("--partition", place, "--text", "needle") == [3]
    assert found("--batch", str(first), "--text", "nothing") == []
    assert found("--since", "2020-01-01T00:00:00Z", "--text", "hay") == [4]
    since, before = ("--since", "2020-01-01T00:00:00Z"), ("--before", "2020-01-02T00:00:00Z")
    assert found(*since, *before) == []
    for words, said in (
        (before, "a span of time needs its beginning, too"),
        (("--since", "today"), "2026-11-20T14:05:00Z"),
        (("--partition", f"{world.topic}/99"), f"has never read {world.topic}/99"),
        (("--partition", "other/0"), "has never read other/0"),
        (("--batch", "4000000000"), "the ledger has no batch 4000000000"),
        (("--text", "needle"), "a text is looked for among the dead letters of a batch"),
        (("--partition", "0"), "--partition = '0' is no partition"),
    ):
        tally("dead-letters", *words).ends(2, said)


def test_the_lines_behind_a_count_prove_it(tally: Call, world: World) -> None:
    """With exit code 1 where they do not; what is unprintable is escaped."""
    batch = commit(world, *[LINE] * 3, f"{LINE}\x1b[31m", "what is this")
    told = tally("lines", "2017-07-30 14:09", "--limit", "3").ends(0).stdout
    assert "4 lines found, 4 counted" in told
    assert told.count(LINE) == 3
    for words in (("--batch", str(batch)), ("2017-07-30 14:09", "--partition", f"{world.topic}/0")):
        found = tally("lines", *words, "--json").ends(0).document
        assert (found["verdict"], found["found"], found["doubts"]) == ("equal", 4, [])
        assert found["lines"][3]["value"] == f"{LINE}\\x1b[31m"
    assert "0 lines found, 0 counted" in tally("lines", "2017-07-30 14:10").ends(0).stdout
    tally("lines").ends(2, "lines of what?")
    tally("lines", "2017-07-30 14:09", "--label", "level").ends(2, "is no label with its value")
    tally("lines", "2017-07-30 14:09", "--label", "level=x").ends(2, "it has: none")
    world.execute(f"update `{world.name}` set log_count = 5")
    tally("lines", "2017-07-30 14:09").ends(1)


def test_the_shell_completes_pipelines_topics_and_batches(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = commit(world, LINE)

    def completed(words: str) -> list[str]:
        typed = ["tally", *words.split(" ")]
        monkeypatch.setenv("COMP_WORDS", " ".join(typed))
        monkeypatch.setenv("COMP_CWORD", str(len(typed) - 1))
        monkeypatch.setenv("_TALLY_COMPLETE", "bash_complete")
        result = CliRunner().invoke(cli, [], obj=App(), prog_name="tally")
        assert result.stderr == ""
        return [line.partition(",")[2] for line in result.stdout.splitlines() if line]

    assert completed("status ") == [world.name]
    assert completed("status p_nothing") == []
    assert completed(f"topics adopt {world.name} ") == [world.topic]
    assert completed("format try ") == [world.topic, ""]  # and files, by the shell
    with world.config.open("a", encoding="utf-8") as config:
        config.write(f"[pipelines.z_{world.name}]\ntopics = []\n")
    assert completed(f"topics adopt {world.name} ") == [world.topic]
    assert completed("status ") == [world.name, f"z_{world.name}"]  # it has something to say
    for command in ("show ", "run ", "dead-letters --batch "):
        assert completed(command) == [str(batch_id)]
    monkeypatch.setenv("TALLY_MYSQL__PORT", "1")
    assert completed("show ") == []
    monkeypatch.setenv("TALLY_MYSQL__PORT", "none")
    assert completed("status ") == []


def test_a_refused_login_says_where_the_password_comes_from(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several sources the one that won is the one to correct; it is not shown."""
    text = world.config.read_text(encoding="utf-8")
    wrong = re.sub(r'^password = ".*"$', 'password = "wr0ng"', text, flags=re.MULTILINE)
    assert wrong != text
    world.config.write_text(wrong, encoding="utf-8")
    for source in (str(world.config), "TALLY_MYSQL__PASSWORD"):
        if source.startswith("TALLY"):
            monkeypatch.setenv(source, "wr0ng")
        for command in ("status", "migrate"):
            answer = tally(command).ends(4, "Access denied", f"mysql.password comes from {source}")
            assert re.search(r"tally@127\.0\.0\.1:\d+", answer.stderr)
            assert "wr0ng" not in answer.stderr
    checks = {c["check"]: c for c in tally("doctor", "--json").document["checks"]}
    assert f"mysql.password comes from {source}" in checks["mysql.reachable"]["next_step"]
    # Of several pipelines at once it is said as well, and once: it is the same for all of them.
    monkeypatch.setenv("TALLY_PIPELINES__ANOTHER__TOPICS", f'["{world.topic}"]')
    answer = tally("counts").ends(4)
    assert answer.stderr.count("access-denied") == 1
    assert answer.stderr.count("TALLY_MYSQL__PASSWORD") == 1
