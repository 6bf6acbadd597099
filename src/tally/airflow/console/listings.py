"""The tables that several pages show."""

from collections.abc import Mapping, Sequence
from typing import Final

from tally.airflow.console.tables import Cell, Column, Table
from tally.app.batches import BatchView
from tally.app.dead_letters import DeadLetterView
from tally.app.status import PartitionStatus, StatusView
from tally.app.waiting import WaitingView
from tally.ledger.records import BatchRecord
from tally.losses.losses import LossView

REPLACED_NAMED: Final = 20
"""Batches that a cell names."""


def batches_table(found: tuple[BatchRecord, ...], name: str, title: str, *, of: str = "") -> Table:
    """Batches; ``of`` is the way to the folder of the pipeline."""
    return Table(
        name=name,
        title=title,
        columns=(
            Column(key="batch_id", title="batch"),
            Column(key="kind", title="kind"),
            Column(key="state", title="state"),
            Column(key="attempt", title="attempt"),
            Column(key="planned_at", title="planned"),
            Column(key="committed_at", title="committed"),
            Column(key="seconds", title="seconds"),
            Column(key="records", title="records"),
            Column(key="matched", title="counted"),
            Column(key="malformed", title="dead letters"),
        ),
        rows=[
            {
                "batch_id": one.batch_id,
                "kind": str(one.kind),
                "state": one.standing,
                "attempt": one.attempt,
                "planned_at": one.planned_at,
                "committed_at": one.committed_at,
                "seconds": _seconds(one),
                "records": one.records,
                "matched": one.matched,
                "malformed": one.malformed,
            }
            for one in found
        ],
        links={"batch_id": of + "batches/{batch_id}"},
    )


def _seconds(batch: BatchRecord) -> float | None:
    """From its plan to its commit; None before that."""
    if batch.committed_at is None:
        return None
    return round(sum(seconds for step, seconds in batch.steps.items() if step != "planned"), 1)


def batch_tables(view: BatchView) -> tuple[Table, ...]:
    """The ranges of a batch, and the rows to which it adds most."""
    return (
        Table(
            name="ranges",
            title="Ranges",
            columns=(
                Column(key="partition", title="partition"),
                Column(key="from_offset", title="from"),
                Column(key="until_offset", title="until"),
                Column(key="state", title="state"),
                Column(key="records", title="records"),
                Column(key="matched", title="counted"),
                Column(key="unmatched", title="not counted"),
                Column(key="continuations", title="continuation lines"),
                Column(key="malformed", title="dead letters"),
                Column(key="superseded_by_batch", title="superseded by batch"),
                Column(key="replaces", title="replaces batches"),
            ),
            rows=[
                {
                    "partition": one.place,
                    "from_offset": one.from_offset,
                    "until_offset": one.until_offset,
                    "state": str(one.state),
                    "records": one.records,
                    "matched": one.matched,
                    "unmatched": one.unmatched,
                    "continuations": one.continuations,
                    "malformed": one.malformed,
                    "superseded_by_batch": one.superseded_by_batch,
                    "replaces": _some(sorted({r.batch_id for r in one.replaces})),
                }
                for one in view.ranges
            ],
            links={"superseded_by_batch": "{superseded_by_batch}"},
        ),
        Table(
            name="rows",
            title="Rows of the result to which it adds most",
            columns=(
                Column(key="minute", title="minute"),
                *(Column(key=f"label_{name}", title=name) for name in view.columns.labels),
                Column(key="lines", title="lines"),
            ),
            rows=[
                {
                    "minute": row.log_time[:16],
                    **{f"label_{name}": value for name, value in row.labels.items()},
                    "lines": row.log_count,
                }
                for row in view.minutes
            ],
        ),
    )


def _some(numbers: Sequence[int]) -> str:
    """The numbers, the first of them where there are many."""
    more = len(numbers) - REPLACED_NAMED
    named = ", ".join(map(str, numbers[:REPLACED_NAMED]))
    return f"{named} and {more:,} more" if more > 0 else named


def partitions_table(view: StatusView, asked: WaitingView | None) -> Table:
    """Partitions, with what Kafka said where it was asked."""
    waiting = asked.by_partition if asked else {}

    def row(p: PartitionStatus) -> dict[str, Cell]:
        oldest = waiting.get(p.where)
        return {
            "partition": p.place,
            "condition": p.condition if asked or p.open_loss else "",
            "start_offset": p.start_offset,
            "next_offset": p.next_offset,
            "planned_offsets": p.planned_offsets,
            "kafka_earliest": p.kafka_earliest,
            "kafka_end": p.kafka_end,
            "lag_offsets": p.lag_offsets,
            "oldest_written_at": oldest.written_at if oldest else None,
            "oldest_expires_at": oldest.expires_at if oldest else None,
        }

    return Table(
        name="partitions",
        title="Partitions",
        columns=(
            Column(key="partition", title="partition"),
            Column(key="condition", title="condition"),
            Column(key="start_offset", title="start"),
            Column(key="next_offset", title="next"),
            Column(key="planned_offsets", title="planned, not counted"),
            Column(key="kafka_earliest", title="Kafka's first"),
            Column(key="kafka_end", title="Kafka's end"),
            Column(key="lag_offsets", title="lag"),
            Column(key="oldest_written_at", title="oldest uncounted"),
            Column(key="oldest_expires_at", title="expires not before"),
        ),
        rows=[row(p) for p in view.partitions],
        empty="none is planned yet",
    )


def losses_table(found: list[LossView], name: str, title: str) -> Table:
    """Lost ranges."""
    return Table(
        name=name,
        title=title,
        columns=(
            Column(key="lost_range_id", title="loss"),
            Column(key="partition", title="partition"),
            Column(key="from_offset", title="from"),
            Column(key="until_offset", title="until"),
            Column(key="offsets", title="offsets"),
            Column(key="cause", title="cause"),
            Column(key="state", title="state"),
            Column(key="detected_at", title="detected"),
            Column(key="decided_at", title="decided"),
            Column(key="decided_by", title="by"),
            Column(key="reason", title="reason"),
        ),
        rows=[
            {
                "lost_range_id": one.lost_range_id,
                "partition": one.place,
                "from_offset": one.from_offset,
                "until_offset": one.until_offset,
                "offsets": one.offsets,
                "cause": str(one.cause),
                "state": one.state,
                "detected_at": one.detected_at,
                "decided_at": one.decided_at,
                "decided_by": one.decided_by,
                "reason": one.reason,
            }
            for one in found
        ],
    )


def reasons_table(totals: Mapping[str, int], others: str) -> Table:
    """How many dead letters there are of each reason; ``others`` is the rest of the address."""
    return Table(
        name="reasons",
        title="By reason",
        columns=(
            Column(key="reason", title="reason"),
            Column(key="dead_letters", title="dead letters"),
        ),
        rows=[{"reason": reason, "dead_letters": n} for reason, n in totals.items()],
        links={"reason": f"dead-letters?{others}&reason={{reason}}"},
    )


def letters_table(found: Sequence[DeadLetterView]) -> Table:
    """Records that could not be understood."""
    return Table(
        name="dead_letters",
        title="Records that could not be understood",
        columns=(
            Column(key="batch_id", title="batch"),
            Column(key="partition", title="partition"),
            Column(key="offset", title="offset"),
            Column(key="reason", title="reason"),
            Column(key="value_bytes", title="bytes"),
            Column(key="value", title="value", is_raw=True),
            Column(key="value_base64", title="exact bytes, Base64", is_raw=True),
        ),
        rows=[
            {
                "batch_id": letter.batch_id,
                "partition": letter.place,
                "offset": letter.offset,
                "reason": letter.reason,
                "value_bytes": letter.value_bytes,
                "value": letter.value,
                "value_base64": letter.value_base64,
            }
            for letter in found
        ],
        links={"batch_id": "batches/{batch_id}"},
    )
