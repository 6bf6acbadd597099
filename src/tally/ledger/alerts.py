"""Alerts: the limits that a pipeline's complete minutes have broken, and who was told.

Judged in the planning transaction, each complete minute once, under the lock of the pipeline's row
of ``progress``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from operator import gt, lt
from typing import Final, NamedTuple

from tally.aggregates.aggregate import fingerprint
from tally.config.pipeline import Pipeline
from tally.ledger.rows import records
from tally.ledger.rules import first_recent, recently_understood
from tally.ledger.series import buckets
from tally.ledger.tables import Tables
from tally.lines.time_rule import UTC
from tally.mysql.transactions import Transaction
from tally.planning.completeness import is_shown

MINUTE: Final = timedelta(minutes=1)
LONGEST: Final = timedelta(days=1)
"""Of a longer standstill only the last minutes are judged."""


class AlertRule(StrEnum):
    """Which limit."""

    ABOVE = "above"
    BELOW = "below"
    SHARE = "share"
    SILENT = "silent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """A limit that is broken, or was until lately."""

    rule: AlertRule
    """``above`` or ``below``: lines of a complete minute; ``share``: of counted lines among all;
    ``silent``: minutes without a record."""
    is_firing: bool
    """Whether it is broken by the latest complete minutes."""
    log_time: str
    """The last minute that broke it, ``YYYY-MM-DD HH:MM:00`` on the lines' own clock."""
    value: float
    """The figure that did: lines, a share from 0 to 1, or minutes."""
    bound: float
    """The limit then."""
    changed_at: datetime
    """When that began, or ended."""
    notified_at: datetime | None
    """When that was notified; null when it was not yet."""

    @property
    def text(self) -> str:
        """In words."""
        is_share = self.rule is AlertRule.SHARE
        value, bound = (f"{n:.1%}" if is_share else f"{n:.0f}" for n in (self.value, self.bound))
        words = _WORDS[self.rule].format(value=value, bound=bound)
        until = "" if self.is_firing else ", and not since"
        return f"{words} at {self.log_time[:-3]}{until}"


_WORDS: Final = {
    AlertRule.ABOVE: "{value} lines, more than {bound},",
    AlertRule.BELOW: "{value} lines, fewer than {bound},",
    AlertRule.SHARE: "{value} of the lines counted, more than {bound},",
    AlertRule.SILENT: "no record for {value} minutes, longer than {bound},",
}


class Broken(NamedTuple):
    """A limit as minutes break it."""

    log_time: datetime
    """The last of these minutes."""
    value: float
    """Its figure."""
    bound: float
    """The limit."""


def broken(
    pipeline: Pipeline,
    minutes: Mapping[datetime, int],
    last: datetime,
    share: float | None,
    silent: int,
) -> dict[AlertRule, Broken]:
    """The limits that are broken. Pure.

    Args:
        pipeline: Has the limits.
        minutes: Lines by minute that became complete, in order.
        last: The last complete minute.
        share: Of counted lines among all that were read lately; None of nothing.
        silent: Whole minutes since a plan has found a record.
    """
    lines = tuple(minutes.items())
    limits = (
        (AlertRule.ABOVE, pipeline.alert_above, lines, gt),
        (AlertRule.BELOW, pipeline.alert_below, lines, lt),
        (AlertRule.SHARE, pipeline.alert_counted_share, ((last, share or 0.0),), gt),
        (AlertRule.SILENT, pipeline.alert_silent_minutes, ((last, silent),), gt),
    )
    return {
        rule: Broken(minute, figure, bound)
        for rule, bound, figures, breaks in limits
        if bound is not None
        for minute, figure in figures
        if breaks(figure, bound)
    }


def judge(tx: Transaction, tables: Tables, pipeline: Pipeline, *, has_found: bool) -> None:
    """Judge the minutes that became complete since the last time, and keep what has changed.

    The first time with limits only the minutes from then on. The share of counted lines and how
    long there was no record are judged each time.

    Args:
        tx: The planning transaction; it has locked the pipeline's row of ``progress``.
        tables: Of the pipeline.
        pipeline: Has the limits.
        has_found: Whether the plan has found records.
    """
    name = pipeline.name
    if has_found:
        tx.execute("update progress set found_at = utc_timestamp(6) where pipeline = %s", (name,))
    if not pipeline.has_alerts:
        tx.execute(_JUDGED, (None, name))
        tx.execute(_ENDS, (name, [*AlertRule]))
        return
    row = tx.one(_TO_JUDGE, (name,))
    until, judged = row["complete_before"], row["judged_before"]
    if until is None:
        return
    tx.execute(_JUDGED, (until, name))
    if judged is None:
        return
    first = max(judged, until - LONGEST)
    lines = buckets(tx, tables, (first, until), MINUTE) if first < until else {}
    zone = pipeline.time_zone or UTC
    minutes = {
        minute: lines.get(minute, 0)
        for minute in (first + n * MINUTE for n in range((until - first) // MINUTE))
        if is_shown(minute, zone)
    }
    recent = recently_understood(tx, name, fingerprint(pipeline), first_recent(tx, name))
    found = broken(pipeline, minutes, until - MINUTE, recent.share, row["silent"])
    for rule, (log_time, value, bound) in found.items():
        tx.execute(_FIRES, (name, rule, *[log_time, value, bound] * 2))
    of_all = {AlertRule.SHARE, AlertRule.SILENT}
    tx.execute(_ENDS, (name, [*(set(AlertRule) if minutes else of_all) - found.keys(), ""]))


_JUDGED: Final = "update progress set judged_before = %s where pipeline = %s"
_TO_JUDGE: Final = """
    select complete_before, judged_before,
        timestampdiff(minute, found_at, utc_timestamp(6)) as silent
    from progress where pipeline = %s
"""
# Of both the assignments are in order: what was is asked before it is changed.
_FIRES: Final = """
    insert into alert (pipeline, rule, is_firing, log_time, value, bound, changed_at)
    values (%s, %s, true, %s, %s, %s, utc_timestamp(6))
    on duplicate key update
        changed_at = if(is_firing, changed_at, utc_timestamp(6)),
        notified_at = if(is_firing, notified_at, null), is_firing = true,
        log_time = %s, value = %s, bound = %s
"""
_ENDS: Final = """
    update alert set is_firing = false, changed_at = utc_timestamp(6), notified_at = null
    where pipeline = %s and is_firing and rule in %s
"""


def alerts_of(tx: Transaction, pipeline: str, *, unnotified: bool = False) -> list[Alert]:
    """The alerts of a pipeline: of each limit that was ever broken the last one.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        unnotified: Only those of which nobody was told.
    """
    among = "from alert a where a.pipeline = %s and (a.notified_at is null or not %s)"
    of_minute = "date_format(a.log_time, '%%Y-%%m-%%d %%H:%%i:00')"
    asked = (pipeline, unnotified)
    return records(tx, Alert, f"{among} order by a.rule", asked, "a", log_time=of_minute)


def notified(tx: Transaction, pipeline: str, alert: Alert) -> None:
    """Record that an alert was notified, unless it has changed since."""
    tx.execute(
        "update alert set notified_at = utc_timestamp(6)"
        " where pipeline = %s and rule = %s and changed_at = %s",
        (pipeline, alert.rule, alert.changed_at),
    )
