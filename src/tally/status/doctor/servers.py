"""Checks of the servers: MySQL, what the console's user may do there, and Kafka."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tally.config.names import RESERVED_TABLES, RIGHTS
from tally.config.pipeline import Pipeline
from tally.config.servers import MySQLSettings
from tally.config.settings import Settings
from tally.context import Context, console_context
from tally.ledger.schema import denied_rights, grants
from tally.model import KafkaSnapshot, TopicRights
from tally.mysql.transactions import Database, Row
from tally.mysql.versions import SERVER_NEEDED, is_supported, server_facts
from tally.set_up.migrate import missing
from tally.status.doctor.diagnosis import Diagnosis, asked, fail, ok, skip, warn

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
_START_KAFKA: Final = "start Kafka (locally: tally up kafka), or correct kafka.bootstrap_servers"

Rights = Mapping[str, Sequence[str]]
"""What is to be allowed on each table."""

CHECK: Final = "console.rights"

# What lets nobody change anything.
_HARMLESS: Final = frozenset({"USAGE", "SELECT", "SHOW VIEW", "SHOW DATABASES"})
_GRANT: Final = re.compile(
    r"GRANT (?P<rights>.+?)(?: ON (?P<where>.+?))? TO .+?(?P<further> WITH .*)?", re.IGNORECASE
)
# What an account may not do after all, and which of its roles it begins with.
_NO_RIGHT: Final = re.compile(r"REVOKE |SET DEFAULT ROLE ", re.IGNORECASE)
_COLUMNS: Final = re.compile(r"\s*\([^)]*\)")


def check_database(ctx: Context, config: Path) -> Iterator[Diagnosis]:
    """All checks of the server, its settings, the tables and the grants."""
    settings, explained = ctx.settings, (ctx.settings, config)
    facts = asked("mysql.reachable", lambda: server_facts(ctx.database), _START, *explained)
    yield from _check_server(MYSQL, settings.mysql, facts)
    yield check_packet(
        int(facts["session"]["max_allowed_packet"]),
        max((p.dead_letter_max_bytes for p in settings.pipelines.values()), default=0),
    )
    if settings.results is not None and any(
        settings.pipeline(name).rows_view for name in settings.pipelines
    ):
        kept = asked(
            "results.reachable", lambda: server_facts(ctx.rows), _START_RESULTS, *explained
        )
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
    settings, explained = ctx.settings, (ctx.settings, config)
    lacking = asked("mysql.tables", lambda: missing(ctx.database, settings), _START, *explained)
    if lacking:
        yield fail("mysql.tables", f"missing: {', '.join(lacking)}", "tally migrate")
        return
    yield ok("mysql.tables", "all there")
    results = {settings.pipeline(name).table for name in settings.pipelines}
    ledgers = dict.fromkeys(sorted(RESERVED_TABLES | results), RIGHTS)
    of_lines: dict[str, Sequence[str]] = {}
    for name in settings.pipelines:
        of_lines |= settings.pipeline(name).line_rights
    where = settings.results or settings.mysql

    def denied(database: Database, mysql: MySQLSettings, rights: Rights) -> list[str]:
        tried = partial(denied_rights, database=mysql.database, tables=rights)
        work = partial(database.run, tried, dry_run=True)
        return asked("mysql.grants", work, _START, *explained) if rights else []

    denied_here = denied(ctx.database, settings.mysql, ledgers)
    denied_lines = denied(ctx.rows, where, of_lines)
    yield _grants(settings.mysql, denied_here)
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


def check_console(settings: Settings) -> Iterator[Diagnosis]:
    """Whether the console's user can read the ledger, and whether it could change something."""
    if settings.console.user is None:
        yield skip(CHECK, "[console] names no user; Airflow's connection tally_console may")
        return
    user = settings.console.user
    further = sorted(set(changing(asked(CHECK, lambda: _grants_of_console(settings)))))
    if further:
        yield fail(
            CHECK,
            f"{user} may do more than read: {'; '.join(further)}",
            f"revoke all privileges, grant option from '{user}'@…, then: grant select on "
            f"{settings.mysql.database}.* to '{user}'@…",
        )
    else:
        yield ok(CHECK, f"{user} can read, and change nothing")


def _grants_of_console(settings: Settings) -> list[str]:
    with console_context(settings).database.transaction(read_only=True) as tx:
        return grants(tx)


def changing(grants: Iterable[str]) -> Iterator[str]:
    """What grants allow besides reading: ``INSERT on `tally`.*``, or a role.

    Args:
        grants: The answer to ``show grants``.
    """
    for grant in grants:
        found = _GRANT.fullmatch(grant)
        if _NO_RIGHT.match(grant):
            continue
        if found is None:
            yield grant
            continue
        rights = [right.strip() for right in _COLUMNS.sub("", found["rights"]).split(",")]
        if found["where"] is None:
            yield from (f"the role {role}" for role in rights)
            continue
        yield from (f"{r} on {found['where']}" for r in rights if r.upper() not in _HARMLESS)
        # Limits of an account let nobody change anything; GRANT OPTION and ADMIN OPTION do.
        if "OPTION" in (found["further"] or "").upper():
            yield f"{found['further'].strip().lower()} on {found['where']}"


def check_broker(ctx: Context, config: Path) -> Iterator[Diagnosis]:
    """All checks of Kafka."""
    settings = ctx.settings
    topics = sorted(
        {topic for pipeline in settings.pipelines.values() for topic in pipeline.topics}
    )

    def ask() -> tuple[KafkaSnapshot, Mapping[str, TopicRights]]:
        held = ctx.kafka.snapshot(topics)
        return held, ctx.kafka.rights(held.topics)

    snapshot, rights = asked("kafka.reachable", ask, _START_KAFKA, settings, config)
    yield ok(
        "kafka.reachable", f"{settings.kafka.bootstrap_servers}, cluster {snapshot.cluster_id}"
    )
    for name in sorted(settings.pipelines):
        pipeline = settings.pipeline(name)
        for topic in pipeline.topics:
            yield check_topic(pipeline, topic, snapshot, rights)


def check_topic(
    pipeline: Pipeline, topic: str, snapshot: KafkaSnapshot, rights: Mapping[str, TopicRights]
) -> Diagnosis:
    """Whether the topic exists, may be read, and is kept as the pipeline expects."""
    check = f"kafka.topic.{topic}"
    if topic not in snapshot.topics:
        return fail(
            check,
            f"pipeline {pipeline.name}: Kafka has no such topic",
            "create it, or take it out of the pipeline's topics",
        )
    right = rights[topic]
    if not right.readable:
        return fail(
            check, "these credentials may not read it", "add an ACL: READ and DESCRIBE on the topic"
        )
    if right.compacted and not pipeline.is_sparse:
        return fail(
            check,
            "it is compacted: offsets will be missing, and each one would be recorded as a loss",
            f'set offsets = "sparse" in [pipelines.{pipeline.name}]',
        )
    return ok(check, f"{len(snapshot.topics[topic].partitions)} partitions, may be read")
