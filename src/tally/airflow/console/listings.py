"""The tables that several pages show."""

from collections.abc import Mapping, Sequence
from functools import partial

from tally.airflow.console.tables import Table
from tally.ledger.decisions import LossRecord
from tally.ledger.records import BatchRecord
from tally.ledger.results import ResultRow
from tally.reading import columns
from tally.reading.batches import BatchView
from tally.reading.columns import Column, row_of, titled
from tally.reading.dead_letters import DeadLetterView
from tally.status.status import StatusView
from tally.status.waiting import WaitingView


def batches_table(found: Sequence[BatchRecord], name: str, title: str, *, of: str = "") -> Table:
    """Batches; ``of`` is the way to the folder of the pipeline."""
    links = {"batch_id": of + "batches/{batch_id}"}
    return Table.of(columns.BATCH, found, name=name, title=title, links=links)


def batch_tables(view: BatchView) -> tuple[Table, ...]:
    """The ranges of a batch, and the rows to which it adds most."""
    rows = (
        Column("minute", "minute", of=lambda row: row.log_time[:16]),
        *(Column(f"label_{name}", name, of=partial(_label, name)) for name in view.columns.labels),
        Column("lines", "lines", of=lambda row: row.log_count),
    )
    return (
        Table.of(
            columns.SEGMENT,
            view.ranges,
            name="ranges",
            title="Ranges",
            links={"superseded_by_batch": "{superseded_by_batch}"},
        ),
        Table.of(rows, view.minutes, name="rows", title="Rows of the result to which it adds most"),
    )


def _label(name: str, row: ResultRow) -> str:
    return row.labels[name]


def partitions_table(view: StatusView, asked: WaitingView | None) -> Table:
    """Partitions, with Kafka's answer where it was asked."""
    shown = titled(columns.PARTITION)
    rows = [dict(row_of(shown, partition)) for partition in view.partitions]
    for row, partition in zip(rows, view.partitions, strict=True):
        if asked and (oldest := asked.oldest.get(partition.partition)):
            row["oldest_written_at"] = oldest.written_at
            row["oldest_expires_at"] = oldest.expires_at
        if not asked and not partition.open_loss:
            row["condition"] = ""
    return Table(
        name="partitions",
        title="Partitions",
        columns=(
            *shown,
            Column("oldest_written_at", "oldest uncounted"),
            Column("oldest_expires_at", "expires not before"),
        ),
        rows=rows,
        empty="none is planned yet",
    )


def losses_table(found: Sequence[LossRecord], name: str, title: str) -> Table:
    """Lost ranges."""
    return Table.of(columns.LOSS, found, name=name, title=title)


def reasons_table(totals: Mapping[str, int], others: str) -> Table:
    """How many dead letters there are of each reason; ``others`` is the rest of the address."""
    return Table.of(
        (
            Column("reason", "reason", of=lambda one: one[0]),
            Column("dead_letters", "dead letters", of=lambda one: one[1]),
        ),
        totals.items(),
        name="reasons",
        title="By reason",
        links={"reason": f"dead-letters?{others}&reason={{reason}}"},
    )


def letters_table(found: Sequence[DeadLetterView]) -> Table:
    """Records that could not be understood."""
    return Table.of(
        columns.DEAD_LETTER,
        found,
        name="dead_letters",
        title="Records that could not be understood",
        links={"batch_id": "batches/{batch_id}"},
    )
