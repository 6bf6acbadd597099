"""Contributions, folded sums and the result: every statement that reads or writes them.

The server computes the result from the stored contributions, so the two cannot differ.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tally.aggregates.aggregate import LINES, TIME, Aggregate
from tally.aggregates.counts import Contribution
from tally.errors import DataLossError
from tally.formatting import plural, time_span
from tally.ledger.replays import ReplayRecord
from tally.ledger.rows import record
from tally.ledger.tables import SPAN, Tables, listed, summed, tables_of
from tally.mysql.transactions import Parameters, Row, Transaction


def rows_of(
    tables: Tables, aggregate: Aggregate, contributions: Iterable[Contribution]
) -> Iterator[tuple[Contribution, tuple[str, ...], tuple[int, ...]]]:
    """Contributions as rows of the tables; '' where a column's label is no longer configured.

    Yields:
        The contribution, a value for each of ``tables.keys``, and one for each of ``tables.sums``.
    """
    count = len(aggregate.columns)
    places = {column: place for place, column in enumerate(aggregate.columns)}
    labels = [places.get(label.column) for label in tables.labels]
    for c in contributions:
        if len(c.labels) != count:
            raise ValueError(f"{len(c.labels)} label values for {count} labels: {c}")
        if len(c.sums) != len(tables.sums):
            raise ValueError(f"{len(c.sums)} sums for {', '.join(tables.sums)}: {c}")
        yield (
            c,
            (c.log_time, *["" if place is None else c.labels[place] for place in labels]),
            c.sums,
        )


def insert_contributions(tx: Transaction, tables: Tables, rows: Iterable[Parameters]) -> None:
    """Write what segments contribute.

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        rows: Segment id, then a value for each of ``tables.columns``.
    """
    columns = ("segment_id", *tables.columns)
    tx.insert_many(f"insert into `{tables.contributions}` ({listed(columns)}) values %s", rows)


def surplus(
    tx: Transaction, tables: Tables, pipeline: str, rows: Sequence[Parameters]
) -> dict[Parameters, Parameters]:
    """What the result has beyond the live and folded contributions, of the keys of some rows.

    No commit may change it: what is there before is for the audit to find.

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        pipeline: The pipeline.
        rows: As for :func:`insert_contributions`.

    Returns:
        By key a value for each of ``tables.sums``; keys without a difference are left out.
    """
    if not rows:
        return {}
    keys, columns = listed(tables.keys), listed(tables.columns)
    chosen = {tuple(row[1 : 1 + len(tables.keys)]) for row in rows}
    which = f"`{TIME}` in %s and ({keys}) in %s"
    which_c = f"c.`{TIME}` in %s and ({listed(tables.keys, 'c')}) in %s"
    values = (tuple({key[0] for key in chosen}), tuple(chosen))
    minus = ", ".join(f"-`{s}`" for s in tables.sums)
    # The few rows of these minutes are found first, and their segments by key.
    found = tx.rows(
        f"select {keys}, {summed(tables.sums)} from ("
        f"  select {columns} from `{tables.result}` where {which}"
        f"   union all select {keys}, {minus} from (select {listed(tables.columns, 'c')}"
        f"     from {_live(tables)} and {which_c}) as `_live`"
        f"   union all select {keys}, {minus} from `{tables.folded}`"
        f"     where pipeline = %s and {which}"
        f" ) as `_both` group by {keys}",
        (*values, pipeline, *values, pipeline, *values),
    )
    return {
        tuple(row[k] for k in tables.keys): sums
        for row in found
        if any(sums := tuple(int(row[s]) for s in tables.sums))
    }


def add_to_result(tx: Transaction, tables: Tables, batch_id: int) -> None:
    """Add what a batch counts, less what it replaces, to the rows that gain lines."""
    changes = f"({_changes(tables, _OF_BATCH)} having {_sum(LINES)} > 0) as `_added`"
    added = ", ".join(f"`{s}` = `{tables.result}`.`{s}` + `_added`.`{s}`" for s in tables.sums)
    # A row may gain lines and lose what is measured of them. The server checks the row to insert
    # before it finds the one to update, so no negative value may stand there; it is never stored.
    new = [f"greatest(`_added`.`{s}`, 0)" if s != LINES else f"`_added`.`{s}`" for s in tables.sums]
    # In order of keys, so that two batches wait for each other and do not deadlock. The alias
    # begins with an underscore, which no result table's name does.
    tx.execute(
        f"insert into `{tables.result}` ({listed(tables.columns)})"
        f" select {listed(tables.keys, '`_added`')}, {', '.join(new)} from {changes}"
        f" order by {listed(tables.keys, '`_added`')}"
        f" on duplicate key update {added}",
        (batch_id, batch_id),
    )


def take_from_result(tx: Transaction, tables: Tables, batch_id: int) -> None:
    """Subtract what a batch replaces, less what it counts, from the other rows; delete empty rows.

    Raises:
        DataLossError: The result has less than is to be subtracted. Nothing is changed.
    """
    result, keys = f"`{tables.result}`", listed(tables.keys)
    changes = f"{_changes(tables, _OF_BATCH)} having {_sum(LINES)} <= 0 and ({_differs(tables)})"
    fewer = f"({changes}) as `_fewer`"
    both = (batch_id, batch_id)
    wanted = tx.scalar(f"select count(*) from {fewer}", both)
    less = ", ".join(f"{result}.`{s}` = {result}.`{s}` + `_fewer`.`{s}`" for s in tables.sums)
    enough = " and ".join(f"{result}.`{s}` + `_fewer`.`{s}` >= 0" for s in tables.sums)
    taken = tx.execute(
        f"update {result} join {fewer} using ({keys}) set {less} where {enough}", both
    )
    if short := wanted - taken:
        raise DataLossError(
            f"batch {batch_id}: {tables.result} has less in {short} rows than the segments that "
            "are to be replaced have counted",
            next_step="tally audit",
        )
    tx.execute(
        f"delete {result} from {result} join {fewer} using ({keys}) where {result}.`{LINES}` = 0",
        both,
    )


def rows_replaced(tx: Transaction, tables: Tables, batch_id: int) -> int:
    """How many contributions the segments have that a replay's batch is to replace."""
    return int(
        tx.scalar(
            f"select count(*) from `{tables.contributions}` c"
            " join replacement r on r.replaced_id = c.segment_id"
            " join segment s on s.segment_id = r.segment_id where s.batch_id = %s",
            (batch_id,),
        )
    )


def fold(tx: Transaction, tables: Tables, pipeline: str, segment_ids: Sequence[int]) -> int:
    """Add the contributions of segments to the folded sums, and delete them.

    Returns:
        How many contributions were deleted.
    """
    added = ", ".join(f"`{s}` = `{tables.folded}`.`{s}` + `_sums`.`{s}`" for s in tables.sums)
    tx.execute(
        f"insert into `{tables.folded}` (pipeline, {listed(tables.columns)})"
        f" select %s, {listed(tables.columns, '`_sums`')} from ("
        f"   select {listed(tables.keys)}, {summed(tables.sums)} from `{tables.contributions}`"
        f"   where segment_id in %s group by {listed(tables.keys)}"
        f" ) as `_sums` order by {listed(tables.keys, '`_sums`')}"
        f" on duplicate key update {added}",
        (pipeline, segment_ids),
    )
    return delete_contributions(tx, tables, segment_ids)


def delete_contributions(tx: Transaction, tables: Tables, segment_ids: Sequence[int]) -> int:
    """Delete the contributions of segments; returns how many."""
    return tx.execute(
        f"delete from `{tables.contributions}` where segment_id in %s", (segment_ids,)
    )


def copy_shared(tx: Transaction, shared: Tables, own: Tables, pipeline: str) -> None:
    """Move a pipeline's rows from the tables that pipelines share to tables of its own."""
    here = (
        "segment_id in (select s.segment_id from segment s join batch b using (batch_id)"
        " where b.pipeline = %s)"
    )
    for old, new, key, where in (
        (shared.contributions, own.contributions, "segment_id", here),
        (shared.folded, own.folded, "pipeline", "pipeline = %s"),
    ):
        columns = f"{key}, {listed(shared.columns)}"
        moved = f"select {columns} from `{old}` where {where}"
        tx.execute(f"insert into `{new}` ({columns}) {moved}", (pipeline,))
        tx.execute(f"delete from `{old}` where {where}", (pipeline,))


def lines_of_segment(tables: Tables) -> str:
    """A subquery for the lines that the segment ``s`` has contributed."""
    return (
        f"(select coalesce(sum(c.`{LINES}`), 0) from `{tables.contributions}` c"
        " where c.segment_id = s.segment_id)"
    )


def contributions_of(
    tx: Transaction, tables: Tables, segment_ids: Sequence[int]
) -> dict[int, dict[tuple[str, ...], tuple[int, ...]]]:
    """What each segment contributes: by minute and labels, the sums."""
    rows = tx.stream(
        f"select segment_id, {listed((*tables.keys, *tables.sums))} from `{tables.contributions}`"
        " where segment_id in %s",
        (list(segment_ids),),
    )
    found: dict[int, dict[tuple[str, ...], tuple[int, ...]]] = {i: {} for i in segment_ids}
    for row in rows:
        key = (str(row[TIME]), *(row[key] for key in tables.keys[1:]))
        found[row["segment_id"]][key] = tuple(int(row[s]) for s in tables.sums)
    return found


def wrong_rows(tx: Transaction, tables: Tables, pipeline: str) -> Iterator[Row]:
    """Rows in which the result and the sum of all live and folded contributions differ.

    Yields:
        The keys; ``stored$``, the sums of the result, and ``expected$``, those of the
        contributions, as text, None where there is no row. No label's column has a dollar sign in
        its name.
    """
    keys, columns = listed(tables.keys), listed(tables.columns)
    added_up = (
        f"select {keys}, {summed(tables.sums)} from ("
        f"  select {listed(tables.columns, 'c')} from {_live(tables)}"
        "   union all"
        f"  select {columns} from `{tables.folded}` where pipeline = %s"
        f") as contributions group by {keys}"
    )
    # Grouped as well: a column that the ledger does not know may make several rows of one, of which
    # a replay could subtract from the wrong one.
    result = (
        f"select {keys}, {summed(tables.sums)}, count(*) as `rows$` from `{tables.result}`"
        f" group by {keys}"
    )
    shown = f"concat_ws(' + ', {listed(tables.sums)})"
    stored = f"if(`rows$` > 1, concat({shown}, ' in ', `rows$`, ' rows'), {shown})"
    return tx.stream(
        f"select {keys}, max(`result$`) as `stored$`, max(`sums$`) as `expected$` from ("
        f"  select {keys}, {stored} as `result$`, null as `sums$` from ({result}) as r"
        "   union all"
        f"  select {keys}, null, {shown} from ({added_up}) as s"
        f" ) as both_sides group by {keys}"
        " having `stored$` is null or `expected$` is null or `stored$` <> `expected$`"
        f" order by {keys}",
        (pipeline, pipeline),
    )


def _live(tables: Tables) -> str:
    """The live contributions ``c`` of a pipeline, with its name as the parameter."""
    return (
        f"`{tables.contributions}` c join segment s on s.segment_id = c.segment_id"
        " join topic_incarnation i on i.incarnation_id = s.incarnation_id"
        " where i.pipeline = %s and s.state = 'live'"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What a replay has changed in the result so far."""

    minutes: int
    """Minutes that count more or fewer lines than before."""
    first_minute: str | None
    """The first of them, ``YYYY-MM-DD HH:MM``."""
    last_minute: str | None
    """The last of them."""
    lines_more: int
    """Lines that minutes gained."""
    lines_fewer: int
    """Lines that minutes lost."""

    def __str__(self) -> str:
        """``2 minutes of the result changed, … to …: 3 lines more, 1,000 fewer``."""
        if not self.minutes:
            return "no minute of the result has changed"
        when = time_span(self.first_minute, self.last_minute)
        return (
            f"{plural(self.minutes, 'minute')} of the result changed, {when}: "
            f"{plural(self.lines_more, 'line')} more, {self.lines_fewer:,} fewer"
        )


def changes_of(tx: Transaction, replay: ReplayRecord) -> Changes | None:
    """What the committed batches of a replay count, less what they replaced.

    None when it is no longer known, because some of it was pruned.
    """
    if replay.pruned_at is not None:
        return None
    tables = tables_of(tx, replay.pipeline)
    row = tx.one(
        f"select {SPAN}, sum(greatest(`{LINES}`, 0)) as lines_more,"
        f" sum(-least(`{LINES}`, 0)) as lines_fewer"
        f" from ({_changes(tables, _OF_REPLAY)} having {_differs(tables)}) as changes",
        (replay.replay_id, replay.replay_id),
    )
    return record(Changes, row)


_OF_BATCH: Final = "s.batch_id = %s"
_OF_REPLAY: Final = (
    "s.batch_id in (select batch_id from batch where replay_id = %s and state = 'committed')"
)


def _changes(tables: Tables, chosen: str) -> str:
    """A query for what segments change in the result, by key: their counts less the replaced ones.

    Args:
        tables: The pipeline's tables.
        chosen: The condition on segments ``s``, with one parameter; the query contains it twice.
    """
    minus = ", ".join(f"-c.`{s}`" for s in tables.sums)
    return (
        f"select {listed(tables.keys)}, {summed(tables.sums, '`_both`')} from ("
        f"  select {listed(tables.columns, 'c')} from `{tables.contributions}` c"
        f"   join segment s on s.segment_id = c.segment_id where {chosen}"
        "   union all"
        f"  select {listed(tables.keys, 'c')}, {minus} from `{tables.contributions}` c"
        "   join replacement r on r.replaced_id = c.segment_id"
        f"   join segment s on s.segment_id = r.segment_id where {chosen}"
        f") as `_both` group by {listed(tables.keys)}"
    )


def changed_minutes(tables: Tables) -> str:
    """A query for the minutes ``log_time`` that a batch changes; its id is both parameters."""
    changes = f"{_changes(tables, _OF_BATCH)} having {_differs(tables)}"
    return f"select distinct `{TIME}` as log_time from ({changes}) changes"


def _differs(tables: Tables) -> str:
    return " or ".join(f"{_sum(s)} <> 0" for s in tables.sums)


def _sum(column: str) -> str:
    return f"sum(`_both`.`{column}`)"
