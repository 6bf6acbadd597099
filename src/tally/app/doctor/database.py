"""Checks of MySQL: version, storage engine, session and server settings, tables, grants."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tally.app.doctor.diagnosis import Diagnosis, fail, next_step_of, ok, warn
from tally.config.names import RESERVED_TABLES, RIGHTS
from tally.config.servers import MySQLSettings
from tally.context import Context
from tally.errors import TallyError
from tally.ledger.schema import denied_rights
from tally.maintenance.migrate import missing
from tally.mysql.transactions import Row, server_facts
from tally.mysql.versions import SERVER_NEEDED, is_supported

# An INSERT carries escaped bytes, at most twice as many, and its own SQL text.
_ESCAPED: Final = 2
_INSERT_BYTES: Final = 1_048_576
_WORDS: Final = 65_536

MYSQL: Final = "mysql"
RESULTS: Final = "results"
"""The sections of the servers, with which the names of the checks begin."""

_START_RESULTS: Final = "start that MySQL, or correct results.host and results.port"
_START: Final = "start MySQL (locally: tally up mysql), or correct mysql.host and mysql.port"

_OFF: Final = frozenset({"OFF", "0", "NO"})


def check_database(ctx: Context, config: Path) -> Iterator[Diagnosis]:
    """All checks of the server, its settings, the tables and the grants."""
    settings = ctx.settings
    try:
        facts = server_facts(ctx.database)
    except TallyError as error:
        yield fail("mysql.reachable", error.what, next_step_of(error, _START, ctx.settings, config))
        return
    yield from _check_server(MYSQL, settings.mysql, facts)
    yield check_packet(
        int(facts["session"]["max_allowed_packet"]),
        max((p.dead_letter_max_bytes for p in settings.pipelines.values()), default=0),
    )
    if settings.results is not None and any(
        settings.pipeline(name).rows_view for name in settings.pipelines
    ):
        try:
            kept = server_facts(ctx.rows)
        except TallyError as error:
            step = next_step_of(error, _START_RESULTS, settings, config)
            yield fail("results.reachable", error.what, step)
            return
        yield from _check_server(RESULTS, settings.results, kept)
    yield from _check_tables(ctx, config)


def _check_server(of: str, mysql: MySQLSettings, facts: Mapping[str, Any]) -> Iterator[Diagnosis]:
    """The checks of any server; the names of the diagnoses begin with its section."""
    yield ok(f"{of}.reachable", f"{mysql.user}@{mysql.host}:{mysql.port}/{mysql.database}")
    yield check_version(facts["version"], of)
    yield check_engine(of, usable=facts["innodb"])
    yield check_session(facts["session"], facts["server"], of)
    yield check_durability(facts["server"], of)
    yield check_writable(facts["server"], of)


def check_version(version: str, of: str = MYSQL) -> Diagnosis:
    """Whether the server is new enough for Tally's tables."""
    if not is_supported(version):
        return fail(f"{of}.version", version, f"use {SERVER_NEEDED}")
    return ok(f"{of}.version", version)


def check_engine(of: str = MYSQL, *, usable: bool) -> Diagnosis:
    """Whether InnoDB is available: without it there are no transactions."""
    if not usable:
        return fail(f"{of}.innodb", "InnoDB is not available", "enable InnoDB on the server")
    return ok(f"{of}.innodb", "available")


def check_session(session: Row, server: Row, of: str = MYSQL) -> Diagnosis:
    """Whether a session has the settings that Tally asks for; a proxy can change them.

    Args:
        of: The section of the server's settings.
        session: Variables of a session that Tally opened.
        server: The server's defaults; shown for comparison, Tally does not depend on them.
    """
    wanted = {"autocommit": "OFF", "transaction_isolation": "READ-COMMITTED", "time_zone": "+00:00"}
    wrong = [
        f"{key} = {session.get(key)}" for key, value in wanted.items() if session.get(key) != value
    ]
    if "STRICT_" not in session.get("sql_mode", ""):
        wrong.append(f"sql_mode = {session.get('sql_mode')!r}, not strict")
    if wrong:
        return fail(
            f"{of}.session",
            f"a session of Tally's has {', '.join(wrong)}",
            "take out the proxy or the connection pool that changes session settings",
        )
    return ok(
        f"{of}.session",
        "autocommit off, READ-COMMITTED, strict, UTC (the server's default is "
        f"{server.get('transaction_isolation')})",
    )


def check_durability(server: Row, of: str = MYSQL) -> Diagnosis:
    """Whether a committed transaction survives a power cut."""
    loose = [
        f"{key} = {server[key]}"
        for key, applies in {
            "innodb_flush_log_at_trx_commit": True,
            "sync_binlog": server.get("log_bin") == "ON",
        }.items()
        if applies and server.get(key) != "1"
    ]
    if loose and of == RESULTS:
        return fail(
            "results.durability",
            f"{', '.join(loose)}: a power cut can take lines back whose offsets stay in the ledger",
            "set both to 1 on the server",
        )
    if loose:
        return warn(
            "mysql.durability",
            f"{', '.join(loose)}: a power cut can take back what was committed; counts and offsets "
            "go back together, so it is counted again",
            "set both to 1 on the server, unless you accept that",
        )
    return ok(f"{of}.durability", "a commit is on disk before it is answered")


def check_writable(server: Row, of: str = MYSQL) -> Diagnosis:
    """Whether this is not a replica."""
    on = [
        key
        for key in ("read_only", "super_read_only")
        if str(server.get(key, "OFF")).upper() not in _OFF
    ]
    if on:
        return fail(
            f"{of}.writable", f"{', '.join(on)} is on", f"point {of}.host at the writable server"
        )
    return ok(f"{of}.writable", "yes")


def check_packet(allowed: int, dead_letter_max_bytes: int) -> Diagnosis:
    """Whether the largest dead letter that is kept fits into a packet."""
    needed = _ESCAPED * max(_INSERT_BYTES, dead_letter_max_bytes) + _WORDS
    if allowed < needed:
        return warn(
            "mysql.packet",
            f"max_allowed_packet = {allowed:,}; a dead letter of {dead_letter_max_bytes:,} bytes "
            f"may need {needed:,}",
            "raise max_allowed_packet, or lower dead_letter_max_bytes",
        )
    return ok("mysql.packet", f"max_allowed_packet = {allowed:,}, {needed:,} are needed at most")


def _check_tables(ctx: Context, config: Path) -> Iterator[Diagnosis]:
    settings = ctx.settings
    try:
        lacking = missing(ctx.database, settings)
    except TallyError as error:
        step = next_step_of(error, _START, ctx.settings, config)
        yield fail("mysql.tables", error.what, step)
        return
    if lacking:
        yield fail("mysql.tables", f"missing: {', '.join(lacking)}", "tally migrate")
        return
    yield ok("mysql.tables", "all there")
    try:
        results = {settings.pipeline(name).table for name in settings.pipelines}
        ledgers = dict.fromkeys(sorted(RESERVED_TABLES | results), RIGHTS)
        denied = ctx.database.run(
            lambda tx: denied_rights(tx, settings.mysql.database, ledgers), dry_run=True
        )
        of_lines: dict[str, Sequence[str]] = {}
        for name in settings.pipelines:
            of_lines |= settings.pipeline(name).line_rights
        where = settings.results or settings.mysql
        denied_lines = (
            ctx.rows.run(lambda tx: denied_rights(tx, where.database, of_lines), dry_run=True)
            if of_lines
            else []
        )
    except TallyError as error:
        yield fail("mysql.grants", error.what, next_step_of(error, _START, ctx.settings, config))
        return
    yield _grants(settings.mysql, denied)
    if of_lines:
        yield _grants(where, denied_lines, "rows.grants")


def _grants(mysql: MySQLSettings, denied: Sequence[str], check: str = "mysql.grants") -> Diagnosis:
    if denied:
        return fail(
            check,
            f"{mysql.user} may not {', '.join(denied)}",
            f"grant that, or: grant select, insert, update, delete on `{mysql.database}`.* to it",
        )
    return ok(check, "what is needed on every table (tried)")
