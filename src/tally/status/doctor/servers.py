"""Checks of the servers: MySQL, what the console's user may do there, and Kafka."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tally.config.names import RESERVED_TABLES, RIGHTS
from tally.config.pipeline import Pipeline
from tally.config.servers import MySQLSettings
from tally.config.settings import Settings
from tally.context import Context, console_context
from tally.ledger.schema import denied_rights, grants, server_facts
from tally.model import KafkaSnapshot, TopicRights
from tally.mysql.connection import SERVER_NEEDED, ConnectionPool, is_supported
from tally.mysql.transactions import Row
from tally.set_up.configuration import name_sources
from tally.set_up.migrate import missing
from tally.status.doctor.diagnosis import Diagnosis, asked, fail, judged, ok, skip, warn

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

_SESSION: Final = {
    "autocommit": "OFF",
    "transaction_isolation": "READ-COMMITTED",
    "time_zone": "+00:00",
}
_FLUSHED: Final = {"innodb_flush_log_at_trx_commit": "1"}
_DURABLE: Final = {**_FLUSHED, "sync_binlog": "1"}
_LOOSE: Final = {
    MYSQL: (warn, "counts with their offsets, to be counted again", ", unless you accept that"),
    RESULTS: (fail, "lines whose offsets stay in the ledger", ""),
}
"""What a power cut takes back."""
_NEWER: Final = f"use {SERVER_NEEDED}"
_WRITABLE: Final = ("read_only", "super_read_only")

CONSOLE: Final = "console.rights"

# Grants that allow no change.
_HARMLESS: Final = frozenset({"USAGE", "SELECT", "SHOW VIEW", "SHOW DATABASES"})
_GRANT: Final = re.compile(
    r"GRANT (?P<rights>.+?)(?: ON (?P<where>.+?))? TO .+?(?P<further> WITH .*)?", re.IGNORECASE
)
# What an account may not do after all, and which of its roles it begins with.
_NO_RIGHT: Final = re.compile(r"REVOKE |SET DEFAULT ROLE ", re.IGNORECASE)
_COLUMNS: Final = re.compile(r"\s*\([^)]*\)")


def check_database(ctx: Context, config: Path) -> Iterator[Diagnosis]:
    """All checks of the server, its settings, the tables and the grants."""
    settings, explain = ctx.settings, partial(name_sources, ctx.settings, config)
    facts = asked("mysql.reachable", lambda: server_facts(ctx.database), _START, explain)
    yield ok("mysql.reachable", _address(settings.mysql))
    yield from check_server(MYSQL, facts)
    yield check_packet(
        int(facts["session"]["max_allowed_packet"]),
        max((p.dead_letter_max_bytes for p in settings.pipelines.values()), default=0),
    )
    pipelines = settings.pipelines.values()
    if settings.results is not None and any(pipeline.rows_view for pipeline in pipelines):
        kept = asked("results.reachable", lambda: server_facts(ctx.rows), _START_RESULTS, explain)
        yield ok("results.reachable", _address(settings.results))
        yield from check_server(RESULTS, kept)
    lacking = asked("mysql.tables", lambda: missing(ctx.database, settings), _START, explain)
    absent = f"missing: {', '.join(lacking)}" if lacking else ""
    yield judged("mysql.tables", absent, "tally migrate", "all there")
    if lacking:
        return
    tables = sorted(RESERVED_TABLES | {pipeline.table for pipeline in pipelines})
    of_lines = {table: rights for one in pipelines for table, rights in one.line_rights.items()}
    kept_in = settings.results or settings.mysql
    for check, database, mysql, rights in (
        ("mysql.grants", ctx.database, settings.mysql, dict.fromkeys(tables, RIGHTS)),
        ("rows.grants", ctx.rows, kept_in, of_lines),
    ):
        if rights:
            tried = partial(denied_rights, database=mysql.database, tables=rights)
            work = partial(database.run, tried, dry_run=True)
            denied = ", ".join(asked(check, work, _START, explain))
            yield judged(
                check,
                denied and f"{mysql.user} may not {denied}",
                "grant that, or: grant select, insert, update, delete on "
                f"`{mysql.database}`.* to it",
                "what is needed on every table (tried)",
            )


def _address(mysql: MySQLSettings) -> str:
    return f"{mysql.user}@{mysql.host}:{mysql.port}/{mysql.database}"


def check_server(of: str, facts: Row) -> Iterator[Diagnosis]:
    """The checks of any server.

    A session must have the settings that Tally asks for, which a proxy can change; the server's
    defaults are shown for comparison.

    Args:
        of: The section of the server's settings, with which the names of the checks begin.
        facts: As :func:`tally.ledger.schema.server_facts` has them.
    """
    version, session, server = facts["version"], facts["session"], facts["server"]
    changed = _other(session, _SESSION)
    if "STRICT_" not in session.get("sql_mode", ""):
        changed += f"{', ' if changed else ''}sql_mode = {session.get('sql_mode')!r}, not strict"
    loose = _other(server, _DURABLE if server.get("log_bin") == "ON" else _FLUSHED)
    read_only = ", ".join(k for k in _WRITABLE if str(server.get(k, "OFF")).upper() not in _OFF)
    default = server.get("transaction_isolation")
    yield judged(f"{of}.version", "" if is_supported(version) else version, _NEWER, version)
    yield judged(
        f"{of}.innodb",
        "" if facts["innodb"] else "InnoDB is not available",
        "enable InnoDB on the server",
        "available",
    )
    yield judged(
        f"{of}.session",
        changed and f"a session of Tally's has {changed}",
        "take out the proxy or the connection pool that changes session settings",
        f"autocommit off, READ-COMMITTED, strict, UTC (the server's default is {default})",
    )
    diagnose, lost, remedy = _LOOSE[of]
    yield judged(
        f"{of}.durability",
        loose and f"{loose}: a power cut can take back {lost}",
        f"set both to 1 on the server{remedy}",
        "a commit is on disk before it is answered",
        diagnose,
    )
    yield judged(
        f"{of}.writable",
        read_only and f"{read_only} is on",
        f"point {of}.host at the writable server",
        "yes",
    )


def _other(variables: Row, wanted: Mapping[str, str]) -> str:
    """The variables that have not the value that is wanted."""
    return ", ".join(f"{k} = {variables.get(k)}" for k in wanted if variables.get(k) != wanted[k])


def check_packet(allowed: int, dead_letter_max_bytes: int) -> Diagnosis:
    """Whether the largest dead letter that is kept fits into a packet."""
    needed = _ESCAPED * max(_INSERT_BYTES, dead_letter_max_bytes) + _WORDS
    letter = f"a dead letter of {dead_letter_max_bytes:,} bytes may need {needed:,}"
    return judged(
        "mysql.packet",
        f"max_allowed_packet = {allowed:,}; {letter}" if allowed < needed else "",
        "raise max_allowed_packet, or lower dead_letter_max_bytes",
        f"max_allowed_packet = {allowed:,}, {needed:,} are needed at most",
        warn,
    )


def check_console(settings: Settings) -> Iterator[Diagnosis]:
    """Whether the console's user can read the ledger, and whether it could change something."""
    user = settings.console.user
    if user is None:
        yield skip(CONSOLE, "[console] names no user; Airflow's connection tally_console may")
        return

    def read() -> list[str]:
        with console_context(settings, ConnectionPool()).database.transaction(read_only=True) as tx:
            return grants(tx)

    further = "; ".join(sorted(set(changing(asked(CONSOLE, read)))))
    yield judged(
        CONSOLE,
        further and f"{user} may do more than read: {further}",
        f"revoke all privileges, grant option from '{user}'@…, then: grant select on "
        f"{settings.mysql.database}.* to '{user}'@…",
        f"{user} can read, and change nothing",
    )


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
        # Limits of an account allow no change; GRANT OPTION and ADMIN OPTION do.
        if "OPTION" in (found["further"] or "").upper():
            yield f"{found['further'].strip().lower()} on {found['where']}"


def check_broker(ctx: Context, config: Path) -> Iterator[Diagnosis]:
    """All checks of Kafka."""
    settings = ctx.settings
    pipelines = [settings.pipelines[name] for name in sorted(settings.pipelines)]
    topics = sorted({topic for pipeline in pipelines for topic in pipeline.topics})

    def ask() -> tuple[KafkaSnapshot, Mapping[str, TopicRights]]:
        held = ctx.kafka.snapshot(topics)
        return held, ctx.kafka.rights(held.topics)

    explain = partial(name_sources, settings, config)
    snapshot, rights = asked("kafka.reachable", ask, _START_KAFKA, explain)
    servers = settings.kafka.bootstrap_servers
    yield ok("kafka.reachable", f"{servers}, cluster {snapshot.cluster_id}")
    for pipeline in pipelines:
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
