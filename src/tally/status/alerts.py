"""Of which alerts nobody was told yet."""

from functools import partial

from tally.context import Context
from tally.ledger.alerts import Alert, alerts_of, notified


def unnotified(ctx: Context, name: str) -> list[Alert]:
    """Those of a pipeline that have begun or ended, and of which nobody was told."""
    with ctx.database.transaction(read_only=True) as tx:
        return alerts_of(tx, name, unnotified=True)


def note_notified(ctx: Context, name: str, alert: Alert) -> None:
    """Record that somebody was told of an alert, unless it has changed since."""
    ctx.database.run(partial(notified, pipeline=name, alert=alert))
