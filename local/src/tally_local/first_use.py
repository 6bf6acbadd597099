"""What ``tally up`` does after the servers have started: tables, topics, and where all of it is."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.kafka.client import Kafka
from tally.lines.format import FIXED
from tally.mysql.transactions import Database
from tally.set_up.migrate import migrate
from tally_local.stack.airflow_server import ADMIN
from tally_local.stack.mysql_server import DATABASE, USER
from tally_local.stack.server import Part, PartState, PartStatus
from tally_local.stack.stack import Stack

PARTITIONS: Final = 4
"""Of a topic that the local stack creates."""
_SERVERS: Final = (
    (Part.AIRFLOW, "Airflow", f"  user {ADMIN}", "airflow_admin"),
    (Part.MYSQL, "MySQL", f"  user {USER}, database {DATABASE}", "mysql_tally"),
    (Part.KAFKA, "Kafka", "", None),
    (Part.SPARK, "Spark", "", "spark_token"),
)
"""Servers with a title, the user, and the field of the password."""


def prepare(settings: Settings, parts: Sequence[PartStatus]) -> list[str]:
    """Create tables and topics on those of the stack's servers that run and are configured.

    Args:
        settings: Those of all commands. A server that is not the stack's own is left alone.
        parts: The stack's servers.

    Returns:
        What was done, in order; empty when all was there.
    """
    addresses = _running(parts)
    done: list[str] = []
    if addresses.get(Part.MYSQL) == f"{settings.mysql.host}:{settings.mysql.port}":
        changed = migrate(Database(settings=settings.mysql), settings)
        done += ["mysql: tables created or brought up to date"] if changed else []
    if addresses.get(Part.KAFKA) == settings.kafka.bootstrap_servers:
        kafka, names = Kafka(settings.kafka), sorted(settings.pipelines)
        wanted = [topic for name in names for topic in settings.pipelines[name].topics]
        done += [
            f"kafka: topic {topic} created, {PARTITIONS} partitions"
            for topic in dict.fromkeys(wanted)
            if kafka.create_topic(topic, PARTITIONS)
        ]
    return done


@contextmanager
def telling_what_runs(stack: Stack, say: Callable[[str], None], tally: str) -> Iterator[None]:
    """When the block ends early, also by Ctrl-C, say which servers it has left running.

    Args:
        stack: The stack that the block starts.
        say: Takes the sentence.
        tally: How this shell calls Tally.
    """
    try:
        yield
    except BaseException:
        if running := _running(stack.status()):
            names = ", ".join(running)
            say(f"still running: {names}; {tally} up continues, {tally} down stops them")
        raise


def directions(
    settings: Settings, parts: Sequence[PartStatus], credentials: Path, tally: str
) -> Iterator[str]:
    """Addresses and users of the servers that run, what shows their passwords, what to do next.

    Args:
        settings: Those of all commands.
        parts: The stack's servers.
        credentials: The file with the stack's passwords.
        tally: How this shell calls Tally.
    """
    addresses = _running(parts)
    secrets: list[str] = []
    for part, title, user, secret in _SERVERS:
        if part in addresses:
            yield f"{title + ':':8} {addresses[part]}{user}"
            secrets += [secret] if secret else []
    if secrets:
        yield shows(credentials, *secrets)
    if addresses.keys() >= {Part.KAFKA, Part.MYSQL} and settings.pipelines:
        yield ""
        pipeline = settings.pipeline(min(settings.pipelines))
        yield from _next_commands(pipeline, tally)
        if Part.AIRFLOW in addresses:
            unpause = f"       {tally} airflow cli dags unpause {pipeline.name}"
            yield f"{unpause}    if paused: counts each minute"
            yield f"{unpause}_audit    if paused: audits each day"


def shows(credentials: Path, *names: str) -> str:
    """The command that shows passwords, which may scroll by on a shared screen or in a CI's log.

    Args:
        credentials: The file that only this user can read.
        names: Fields of :class:`tally_local.stack.home.Credentials`.
    """
    return f"passwords:  grep -E {shlex.quote('|'.join(names))} {_from_here(credentials)}"


def _next_commands(pipeline: Pipeline, tally: str) -> Iterator[str]:
    produce = f"{tally} kafka console-producer --topic {shlex.quote(pipeline.topics[0])}"
    if pipeline.line_format == FIXED and not pipeline.filter:
        (level, *_) = pipeline.levels or ["INFO"]
        line = f"2026-01-31 23:59:59 {level} a first line"
        yield f"next:  echo {shlex.quote(line)} | {produce}"
    else:
        yield f"next:  {produce} < A_LOG_FILE"
    yield f"       {tally} run --all"
    yield f"       {tally} counts {pipeline.name}"


def own_name(arguments: Sequence[str] = sys.argv, environment: str | None = None) -> str:
    """How this shell calls the running program: by name if PATH leads to it, else by its path.

    Args:
        arguments: Those of the process.
        environment: The value of PATH; that of the process when None.
    """
    program = Path(arguments[0])
    found = shutil.which(program.name, path=environment)
    if found is not None and Path(found).resolve() == program.resolve():
        return program.name
    return _from_here(program)


def _from_here(path: Path) -> str:
    """A path for this shell: relative unless that leads up."""
    relative = os.path.relpath(path)
    return shlex.quote(str(path.absolute()) if relative.startswith("..") else relative)


def _running(parts: Collection[PartStatus]) -> dict[Part, str]:
    """The addresses of the servers that run."""
    return {s.part: s.address for s in parts if s.state is PartState.RUNNING and s.address}
