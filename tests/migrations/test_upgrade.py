"""A ledger of an earlier version, with data, is migrated and keeps counting.

``ledger-0006.sql`` was written by the code before labels, from a topic of two partitions with the
records below. Offsets 0 to 4 of partition 0 are folded; a replay has counted 5 and 6 by the levels
ERROR and WARN; offsets 9 and 10 are planned and not counted.
"""

import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tally import __version__
from tally.aggregates.counts import CountRequest, Counts
from tally.audit.recount import recount
from tally.errors import SchemaError
from tally.mysql import migrations
from tally.packaged import packaged
from tally.replay.run import run_replay
from tally.set_up.migrate import migrate, missing
from tests.minute.test_prune import pruned
from tests.python_reader import PythonReader
from tests.servers import PROJECT
from tests.world import World

pytestmark = pytest.mark.stack

LAST_RELEASE = "815905ebd5b3c6a7d4e1313abf115895ab61985c"
"""The commit of the last release in CHANGELOG.md."""
OLD_PROGRAM = """
import sys
from pathlib import Path
from tests.servers import shared_stack
from tests.world import World
config, name, act = sys.argv[1:]
world = World(stack=shared_stack(), config=Path(config), name=name, topic=name)
print("done", getattr(world, act)())
"""
"""Calls one method of the old tests' World on a pipeline."""

NEWER = "insert into _yoyo_migration (migration_hash, migration_id) values ('x', '0099.later')"

DUMP = Path(__file__).with_name("ledger-0006.sql")


def line(minute: int, level: str) -> str:
    return f"2017-07-30 14:{minute:02}:08 {level} some message"


PARTITION_0 = [
    *[line(9, "ERROR")] * 3,
    *[line(9, "WARN")] * 2,
    line(10, "ERROR"),
    line(10, "WARN"),
    *[line(11, "ERROR")] * 2,
    line(12, "ERROR"),
    line(12, "WARN"),
]
PARTITION_1 = [
    line(9, "ERROR"),
    "no line at all",
    line(9, "WARN"),
    line(10, "ERROR"),
    line(11, "INFO"),
]
COUNTED = {"2017-07-30 14:09": 4, "2017-07-30 14:10": 3, "2017-07-30 14:11": 2}


@pytest.fixture
def old(empty: World) -> World:
    name = empty.name
    empty.configure(levels=["ERROR", "WARN"])
    empty.create_topic(2)
    empty.produce(PARTITION_0, 0)
    empty.produce(PARTITION_1, 1)
    empty.delete_records(0, 5)
    kafka = empty.context().kafka.snapshot([name])
    text = DUMP.read_text(encoding="utf-8").replace("{pipeline}", name)
    text = text.replace("{topic_id}", kafka.topics[name].topic_id)
    text = text.replace("{cluster_id}", kafka.cluster_id)
    statements = filter(str.strip, text.split(";\n"))
    empty.as_root(f"use `{name}`", "set foreign_key_checks = 0", *statements, "commit")
    return empty


def test_an_old_ledger_keeps_counting_and_gets_labels(old: World) -> None:
    """Its counts and its open batch stay; a replay of old and new segments is right.

    Before it is migrated nothing is planned. Labels of what Kafka still holds are filled in by a
    replay; what was folded keeps ''.
    """
    assert missing(old.database, old.settings)[0].startswith("0007")
    with pytest.raises(SchemaError, match=r"tally migrate|Unknown column"):
        old.plan()
    migrate(old.database, old.settings)
    assert old.counts() == COUNTED
    assert old.audit().holds
    assert {segment["continuations"] for segment in old.segments()} == {None}  # not known: not 0
    planned = old.plan()
    assert planned.resumed
    old.minute()
    assert old.counts() == {**COUNTED, "2017-07-30 14:12": 2}
    old.produce([line(12, "WARN")], 1)
    old.minute()
    list(run_replay(old.context(old.reader), old.ask_replay().replay_id))
    # All by ERROR and WARN now: one WARN more in 14:09, of partition 1, as partition 0 is folded.
    assert old.counts() == {
        "2017-07-30 14:09": 5,
        "2017-07-30 14:10": 3,
        "2017-07-30 14:11": 2,
        "2017-07-30 14:12": 3,
    }
    assert old.audit().holds
    found, wrong = recount(old.context(old.reader), old.name, lambda *_: None)
    assert wrong == []
    assert [str(item.range) for item in found.not_checkable] == [f"{old.name}/0 [0, 5)"]

    old.configure(labels=["level"])
    migrate(old.database, old.settings)
    assert old.audit().holds
    list(run_replay(old.context(old.reader), old.ask_replay().replay_id))
    rows = old.rows(f"select level, sum(log_count) as n from `{old.name}` group by level")
    assert {row["level"]: row["n"] for row in rows} == {"": 3, "ERROR": 6, "WARN": 4}
    assert old.audit().holds


def test_the_minor_version_is_the_number_of_the_newest_migration() -> None:
    """So that code can tell from the ledger alone which version it needs."""
    newest = max(file.name for file in packaged("sql").glob("*.sql"))
    assert int(newest[:4]) == int(__version__.split(".")[1])


def test_older_code_writes_nothing_into_a_newer_ledger(empty: World) -> None:
    """It would leave out what is new; what it reads when the ledger is migrated it throws away."""
    empty.migrate()
    empty.create_topic(1)
    batch_id = empty.planned([line(9, "ERROR")]).batch_id

    class Slow(PythonReader):
        """Whose reading lasts until the ledger is migrated."""

        def count(self, request: CountRequest) -> AbstractContextManager[Counts]:
            """Count as usual."""
            empty.execute(NEWER)
            return super().count(request)

    refused = r"migrated for Tally 0\.99, and this is Tally"
    with pytest.raises(SchemaError, match=refused):
        empty.run(batch_id, Slow(kafka=empty.settings.kafka))
    for other in (empty.plan, empty.migrate, lambda: empty.run(batch_id), lambda: pruned(empty)):
        with pytest.raises(SchemaError, match=refused) as raised:
            other()
        assert raised.value.next_step.startswith("install Tally 0.99 or newer")
    assert empty.counts() == {}
    of_others = "'20990101_01_abcde-init' where migration_id = '0099.later'"
    empty.execute(f"update _yoyo_migration set migration_id = {of_others}")
    assert empty.run(batch_id).committed
    assert empty.counts() == {"2017-07-30 14:09": 1}


def test_older_code_counts_beside_what_only_expands(empty: World) -> None:
    empty.migrate()
    empty.create_topic(1)
    empty.execute("alter table batch add column more int null")
    empty.execute(NEWER.replace("later", "later.expand"))
    empty.produce([line(9, "ERROR")])
    empty.minute()
    assert empty.migrate() == []
    assert empty.counts() == {"2017-07-30 14:09": 1}
    assert empty.audit().holds


def test_the_last_release_and_this_code_count_into_one_ledger(
    empty: World, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Old code beside the expanded schema, new code on its open batch, and back if it may."""
    known = ["git", "-C", PROJECT, "cat-file", "-e", f"{LAST_RELEASE}^{{commit}}"]
    if subprocess.run(known, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("a checkout without the last release in its history")
    checkout = tmp_path_factory.mktemp("last_release")
    packed = subprocess.run(
        ["git", "-C", PROJECT, "archive", LAST_RELEASE, "src", "local", "sql", "tests"],
        stdout=subprocess.PIPE,
        check=True,
    )
    subprocess.run(["tar", "-x", "-C", checkout], input=packed.stdout, check=True)
    (checkout / ".tally").symlink_to(PROJECT / ".tally")
    path = os.pathsep.join(str(checkout / part) for part in ("", "src", "local/src"))

    def old(act: str) -> None:
        answer = subprocess.run(
            [sys.executable, "-c", OLD_PROGRAM, empty.config, empty.name, act],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
            capture_output=True,
            text=True,
        )
        sys.stderr.write(answer.stderr)
        answer.check_returncode()
        assert answer.stdout.splitlines()[-1].startswith("done")

    empty.create_topic(1)
    old("migrate")
    for minute, act in ((9, "minute"), (10, "minute"), (11, "plan")):
        empty.produce([line(minute, "ERROR")] * minute)
        old(act)
        migrate(empty.database, empty.settings, expand_only=True)
    refusing = migrations.stopping(migrations.pending(empty.database))
    migrate(empty.database, empty.settings)
    empty.minute()
    empty.produce([line(12, "ERROR")] * 12)
    if refusing:
        with pytest.raises(subprocess.CalledProcessError) as refused:
            old("minute")
        assert "migrated for Tally" in refused.value.stderr
    else:
        old("minute")
        old("audit")
    empty.produce([line(12, "ERROR")])
    empty.minute()
    assert empty.counts() == {f"2017-07-30 14:{n:02}": n for n in (9, 10, 11)} | {
        "2017-07-30 14:12": 13
    }
    assert empty.audit().holds
