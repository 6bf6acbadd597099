"""Backups as the runbook describes them, by MySQL's own programs on servers with binary logs."""

import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from tally_local.stack.apt_packages import AptPackages
from tally_local.stack.mysql_program import NOT_NEEDED, private_mysql, unpacked
from tally_local.stack.ports import LOOPBACK, Ports
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.minute import steps
from tests.minute.deliveries import COUNTED, Delivery, delivered
from tests.servers import PROJECT, own_servers
from tests.world import World, with_ledger

pytestmark = pytest.mark.stack

RUNBOOK = (PROJECT / "docs" / "runbook.md").read_text(encoding="utf-8")
DOWNLOADS = PROJECT / ".tally" / "downloads"
CLIENTS = AptPackages(
    folder=DOWNLOADS / "mysql-client",
    title="MySQL client",
    packages=("mysql-client-core",),
    not_needed=NOT_NEEDED,
    instead="install mysqldump",
    suite="unstable",
)


@pytest.fixture(scope="module")
def clients(stack: Stack) -> None:
    if not private_mysql(DOWNLOADS / "mysql").is_installed():
        pytest.skip("another server than the private MySQL has other programs")
    CLIENTS.install(print)


def call(program: str, *arguments: str, script: bytes = b"", **account: str | int) -> bytes:
    """Run one of MySQL's programs with the libraries that it was unpacked with."""
    roots = (CLIENTS.root, private_mysql(DOWNLOADS / "mysql").root)
    root = next(root for root in roots if (root / "usr/bin" / program).exists())
    password = str(account.pop("password", ""))
    answer = subprocess.run(
        [
            *(*unpacked(root, f"usr/bin/{program}"), "--no-defaults"),
            *(f"--{name}={value}" for name, value in account.items()),
            *arguments,
        ],
        input=script,
        capture_output=True,
        env={**os.environ, "MYSQL_PWD": password},
        check=False,
    )
    assert answer.returncode == 0, answer.stderr.decode()
    return answer.stdout


def root_of(stack: Stack) -> dict[str, str | int]:
    port = Ports(stack.layout.ports).remembered()["mysql"]
    password = stack.credentials().mysql_root
    return {"host": LOOPBACK, "port": port, "user": "root", "password": password}


def documented(world: World, database: str, *, more: str = "") -> list[str]:
    """Grant a new user what the runbook grants for a dump; returns the options of the dump."""
    user = f"'{world.name}'@'%'"
    of_database, everywhere = (
        re.search(rf"grant (.*) on {level} to 'tally_backup'", RUNBOOK)[1]
        for level in (r"tally\.\*", r"\*\.\*")
    )
    world.as_root(
        f"create user {user} identified by 'a password'",
        f"grant {of_database} on `{database}`.* to {user}",
        f"grant {everywhere}{more} on *.* to {user}",
    )
    return re.search(r"^\$ mysqldump (.*) --databases tally >", RUNBOOK, re.MULTILINE)[1].split()


def dumped(world: World, *arguments: str) -> bytes:
    account = {**root_of(world.stack), "user": world.name, "password": "a password"}
    return call("mysqldump", *arguments, **account)


def test_a_dump_is_restored_under_another_name(
    clients: None, empty: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was counted after it is counted again, with the lines that are kept."""
    world = Delivery(
        stack=empty.stack, config=empty.config, name=empty.name, topic=empty.name, keys=empty.keys
    )
    world.configure(delivery="procedure", labels=["level"])
    world.migrate()
    world.create_topic(1)
    world.count_lines()
    options = documented(world, world.name)
    dump = dumped(world, *options, world.name)
    world.count_lines()
    expected = {minute: 2 * count for minute, count in COUNTED.items()}
    assert steps.audited(world) == expected
    other = f"restored_{secrets.token_hex(4)}"
    world.as_root(
        f"create database {other} character set utf8mb4",
        f"grant all on {other}.* to tally@'{LOOPBACK}'",
    )
    call("mysql", other, script=dump, **root_of(world.stack))
    monkeypatch.setenv("TALLY_MYSQL__DATABASE", other)
    assert world.migrate() == []
    assert steps.audited(world) == COUNTED
    world.run_open()
    assert steps.audited(world) == expected
    assert len(world.kept()) == sum(expected.values())
    world.as_root(f"drop database {other}", f"drop user '{world.name}'@'%'")


@pytest.fixture
def logging(tmp_path: Path) -> Iterator[Stack]:
    """Servers whose MySQL writes a binary log, with a ledger."""
    with own_servers("--log-bin=binlog", "--server-id=1") as stack:
        (folder := tmp_path / "ledger").mkdir()
        yield with_ledger(stack, folder)


@pytest.fixture
def replica() -> Iterator[Stack]:
    with own_servers("--server-id=2", parts=[Part.MYSQL]) as stack:
        yield stack


def position(world: World) -> int:
    with world.connect_as_root() as root, root.cursor() as cursor:
        cursor.execute("show binary log status")
        return int(cursor.fetchone()["Position"])


def test_a_moment_before_a_mistake_is_restored(
    clients: None, logging: Stack, tmp_path: Path
) -> None:
    """By a dump, and what the binary log has after it up to that moment."""
    world = delivered("rows", logging, tmp_path, partitions=1)
    world.count_lines()
    options = documented(world, "tally", more=", reload, replication client")
    dump = dumped(world, *options, "--source-data=2", "--databases", "tally")
    log, start = re.search(r"SOURCE_LOG_FILE='(.*)', SOURCE_LOG_POS=(\d+)", dump.decode()).groups()
    world.count_lines()
    last = position(world)
    world.execute(f"delete from `{world.name}`")
    assert not world.audit().holds
    world.as_root("drop database tally")
    call("mysql", script=dump, **root_of(logging))
    of_page = re.search(r"^\$ mysqlbinlog (--.*) --start-position", RUNBOOK, re.MULTILINE)[1]
    events = call(
        *("mysqlbinlog", *of_page.split()),
        *(f"--start-position={start}", f"--stop-position={last}"),
        str(logging.layout.home / Part.MYSQL / "data" / log),
    )
    call("mysql", script=events, **root_of(logging))
    expected = {minute: 2 * count for minute, count in COUNTED.items()}
    assert steps.audited(world) == expected
    world.count_lines()
    assert steps.audited(world) == {minute: 3 * count for minute, count in COUNTED.items()}
    assert len(world.kept()) == 3 * sum(COUNTED.values())


def test_a_replica_that_lags_is_promoted(
    logging: Stack, replica: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does not know of is planned and counted again."""
    world = delivered("rows", logging, tmp_path, partitions=1)
    source = root_of(logging)
    copy = pymysql.connect(**root_of(replica), autocommit=True)
    with copy.cursor() as cursor:
        cursor.execute(
            f"change replication source to source_host='{LOOPBACK}', source_ssl=1,"
            " source_port=%s, source_user='root', source_password=%s,"
            " source_log_file='binlog.000001', source_log_pos=4",
            (source["port"], source["password"]),
        )
        cursor.execute("start replica")
        world.count_lines()
        cursor.execute("select source_pos_wait('binlog.000001', %s, 60)", (position(world),))
        assert cursor.fetchone()[0] >= 0
        cursor.execute("stop replica sql_thread")
        world.count_lines()
        cursor.execute("stop replica")
        cursor.execute("reset replica all")
    logging.down([Part.MYSQL])
    monkeypatch.setenv("TALLY_MYSQL__PORT", str(root_of(replica)["port"]))
    assert steps.audited(world) == COUNTED
    world.run_open()
    expected = {minute: 2 * count for minute, count in COUNTED.items()}
    assert steps.audited(world) == expected
    assert len(world.kept()) == sum(expected.values())
