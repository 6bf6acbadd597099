"""Which segments replaced which, and what that changed in the result. Changes nothing."""

from dataclasses import dataclass

from tally.aggregates.aggregate import LINES
from tally.formatting import plural, time_span
from tally.ledger.contributions import changes_of_replay
from tally.ledger.tables import tables_of_replay
from tally.mysql.transactions import Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class Replaced:
    """A segment that another one replaces."""

    segment_id: int
    """The segment that is replaced."""
    batch_id: int
    """The batch that counted it."""


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


def replaced_by(tx: Transaction, batch_id: int) -> dict[int, list[Replaced]]:
    """What each segment of a batch was planned to replace, by segment, in order."""
    rows = tx.rows(
        "select r.segment_id, r.replaced_id, o.batch_id as replaced_batch_id"
        " from segment s join replacement r using (segment_id)"
        " join segment o on o.segment_id = r.replaced_id"
        " where s.batch_id = %s order by r.segment_id, r.replaced_id",
        (batch_id,),
    )
    found: dict[int, list[Replaced]] = {}
    for row in rows:
        one = Replaced(segment_id=row["replaced_id"], batch_id=row["replaced_batch_id"])
        found.setdefault(row["segment_id"], []).append(one)
    return found


def successors_of(tx: Transaction, batch_id: int) -> dict[int, int]:
    """The batch that superseded each superseded segment of a batch, by segment."""
    rows = tx.rows(
        "select s.segment_id, n.batch_id from segment s"
        " join segment n on n.segment_id = s.superseded_by where s.batch_id = %s",
        (batch_id,),
    )
    return {row["segment_id"]: row["batch_id"] for row in rows}


def changes_of(tx: Transaction, replay_id: int) -> Changes | None:
    """What the committed batches of a replay count, less what they replaced.

    None when it is no longer known, because some of it was pruned.
    """
    pruned = tx.row("select pruned_at from replay where replay_id = %s", (replay_id,))
    if pruned is not None and pruned["pruned_at"] is not None:
        return None
    row = tx.row(
        "select count(distinct log_time) as minutes,"
        " date_format(min(log_time), '%%Y-%%m-%%d %%H:%%i') as first_minute,"
        " date_format(max(log_time), '%%Y-%%m-%%d %%H:%%i') as last_minute,"
        f" coalesce(sum(greatest(`{LINES}`, 0)), 0) as lines_more,"
        f" coalesce(sum(-least(`{LINES}`, 0)), 0) as lines_fewer"
        f" from ({changes_of_replay(tables_of_replay(tx, replay_id))}) as changes",
        (replay_id, replay_id),
    )
    if row is None:
        return Changes(minutes=0, first_minute=None, last_minute=None, lines_more=0, lines_fewer=0)
    numbers = {key: int(row[key]) for key in ("minutes", "lines_more", "lines_fewer")}
    return Changes(first_minute=row["first_minute"], last_minute=row["last_minute"], **numbers)
