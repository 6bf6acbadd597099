"""The command line as a program would call it, in this process and against real servers."""

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tally import __version__
from tally.app.context import open_context
from tally.cli import cli
from tally.cli.app import App
from tally.clock import Clock, SystemClock
from tally.config.settings import Settings
from tally.deliveries.contract import Result
from tally.ledger import batches
from tally.model import Contribution, DeadLetter, SegmentTotals
from tally.pipeline.commit import commit_once
from tally.pipeline.context import Context
from tally.pipeline.plan import plan_batch
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = "2017-07-30 14:09:00"
LINE = "2017-07-30 14:09:08 ERROR some message"


@pytest.fixture(autouse=True)
def _no_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor asks Airflow where one is configured; another test may have done so."""
    for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
        monkeypatch.delenv(name)


@dataclass(frozen=True)
class Answer:
    """What a call of ``tally`` left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """Stdout as JSON: exactly one document."""
        return json.loads(self.stdout)


Call = Callable[..., Answer]


@pytest.fixture
def ports() -> dict[str, Any]:
    """Fields of the :class:`App` of every command of the test that are not as usual."""
    return {}


@pytest.fixture
def tally(world: World, ports: dict[str, Any]) -> Call:
    """Call the command line with the test's own pipeline configured.

    By keyword: fields of the command's :class:`App`.
    """
    assert world.config.is_file()

    def call(*words: str, **fields: Any) -> Answer:
        app = App(**{**ports, **fields})
        result = CliRunner().invoke(cli, list(words), obj=app)
        return Answer(exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr)

    return call


@pytest.fixture
def lent_spark(spark: "SparkSession", ports: dict[str, Any]) -> "SparkSession":
    """Commands use the session of the tests instead of starting and stopping one."""
    ports["open_spark"] = ports["open_plain_spark"] = lambda _: nullcontext(spark)
    return spark


def listened(listen: Callable[[str], None]) -> Callable[[Settings], Context]:
    """An :attr:`App.open_context` that tells each statement before it is sent."""

    def opened(settings: Settings) -> Context:
        ctx = open_context(settings)
        return replace(ctx, database=replace(ctx.database, listen=listen))

    return opened


def commit(world: World, *, malformed: tuple[bytes, ...] = (), clock: Clock | None = None) -> int:
    """Plan what is new and commit it without Spark; every record is an error line of MINUTE.

    Args:
        world: The test's pipeline.
        malformed: The last records of each range, which become dead letters.
        clock: When it is planned and committed; now when None.
    """
    ctx = world.context(database=replace(world.database, clock=clock or SystemClock()))
    planned = plan_batch(ctx, world.name).batch
    assert planned is not None
    batch = ctx.database.run(lambda tx: batches.claim(tx, planned.batch_id, "test"))
    ranges = [segment.range for segment in batch.segments]
    result = Result(
        totals={
            r.partition: SegmentTotals(
                records=r.offsets,
                matched=r.offsets - len(malformed),
                unmatched=0,
                malformed=len(malformed),
                first_offset=r.from_offset,
                last_offset=r.until_offset - 1,
            )
            for r in ranges
        },
        contributions=[
            Contribution(
                partition=r.partition, log_time=MINUTE, log_count=r.offsets - len(malformed)
            )
            for r in ranges
        ],
        dead_letters=[
            DeadLetter(
                partition=r.partition,
                offset=r.until_offset - len(malformed) + index,
                reason="layout",
                value=value,
                value_bytes=len(value),
            )
            for r in ranges
            for index, value in enumerate(malformed)
        ],
        version=__version__,
        format_fingerprint="test",
    )
    pipeline = world.settings.pipeline(world.name)
    assert commit_once(ctx, batch, pipeline, result)
    return batch.batch_id
