"""One pipeline on the shared MySQL, emptied for each example."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tally import counting, minute, mysql, prune, replay
from tally.migrations import migrate
from tally.settings import KafkaSettings, Settings
from tally.stack.stack import Stack
from tests.properties.disturbance import Wire
from tests.properties.operations import Operation
from tests.properties.pipeline import TOPIC, PipelineUnderTest
from tests.world import make_settings

NAME = "anything"

# Children first; what points at its own kind is let go by the session's foreign_key_checks.
_WIPE: Sequence[str] = (
    "delete c from segment_count c join segment using (segment_id) join batch b using (batch_id)",
    "delete d from dead_letter d join segment using (segment_id) join batch b using (batch_id)",
    "delete r from replacement r join segment using (segment_id) join batch b using (batch_id)",
    "delete s from segment s join batch b using (batch_id)",
    "delete b from batch b",
    "delete b from replay b",
    "delete b from folded_count b",
    "delete l from lost_range l join topic_incarnation b using (incarnation_id)",
    "delete o from partition_offset o join topic_incarnation b using (incarnation_id)",
    "delete b from topic_incarnation b",
    "delete b from pipeline b",
)


@pytest.fixture(scope="session")
def empty_settings(migrated: Stack, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The configuration of the pipeline, with its result table."""
    folder = tmp_path_factory.mktemp("properties")
    path = Path(folder) / "tally.toml"
    settings = make_settings(migrated, path, {NAME: {"topics": [TOPIC]}})
    migrate(settings)
    # The connection of each transaction is kept for the next; without TLS they are faster still.
    plain = settings.mysql.model_copy(update={"tls": "disabled"})
    return settings.model_copy(update={"mysql": plain})


@pytest.fixture
def new_pipeline(
    empty_settings: Settings, migrated: Stack, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], PipelineUnderTest]]:
    """Makes pipelines with an empty ledger; only the newest one can be used."""
    current: list[PipelineUnderTest] = []

    def do(operation: Operation) -> None:
        current[-1].do(operation)

    wire = Wire(open_real=mysql._connect, do=do)
    connection = mysql._connect(empty_settings.mysql, autocommit=True)
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("set session foreign_key_checks = 0")
        cursor.execute("set session transaction isolation level read committed")
        _patch(monkeypatch, wire, current)

        def new() -> PipelineUnderTest:
            wire.disturb(None)
            for statement in _WIPE:
                cursor.execute(f"{statement} where b.pipeline = %s", (NAME,))
            cursor.execute(f"delete from `{NAME}`")
            made = PipelineUnderTest(empty_settings, NAME, connection, wire)
            made.kafka.asked = wire.gap
            current[:] = [made]
            return made

        yield new
        wire.close_all()


def _patch(monkeypatch: pytest.MonkeyPatch, wire: Wire, current: list[PipelineUnderTest]) -> None:
    """Put the model in Kafka's and Spark's place, and let nothing wait."""

    def kafka(_: KafkaSettings) -> Any:
        return current[-1].kafka

    def count_ranges(*arguments: Any, **options: Any) -> Any:
        return current[-1].count_ranges(*arguments, **options)

    def around(module: Any, name: str, method: str) -> None:
        real = getattr(module, name)

        def call(*arguments: Any) -> Any:
            return getattr(current[-1], method)(real, *arguments)

        monkeypatch.setattr(module, name, call)

    monkeypatch.setattr(mysql, "_connect", wire.connect)
    monkeypatch.setattr(mysql, "_close", wire.close)
    monkeypatch.setattr(mysql, "time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setattr(minute, "DOUBT_PAUSE_S", 0)
    monkeypatch.setattr(minute, "Kafka", kafka)
    monkeypatch.setattr(replay, "Kafka", kafka)
    monkeypatch.setattr(prune, "Kafka", kafka)
    monkeypatch.setattr(counting, "count_ranges", count_ranges)
    around(minute, "_count_and_commit", "count_and_commit")
    around(minute, "commit_once", "commit_once")
    around(minute, "_release", "release")
