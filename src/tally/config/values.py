"""What the value of one key of a pipeline may be; for names see :mod:`tally.config.names`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cronsim import CronSim, CronSimError

from tally.lines.redaction import parse_redaction

# Names of Airflow's for some cron expressions.
SCHEDULE_NAMES: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


def check_distinct(topics: list[str]) -> list[str]:
    """Each topic once."""
    if twice := sorted({topic for topic in topics if topics.count(topic) > 1}):
        raise ValueError(f"{', '.join(twice)}: each topic once")
    return topics


def check_level(level: str) -> str:
    """One word."""
    if not level or any(character.isspace() for character in level):
        raise ValueError("a level is one word, as it stands in the line")
    return level


def check_schedule(expression: str) -> str:
    """A cron expression of five fields, or one of its names."""
    if expression in SCHEDULE_NAMES:
        return expression
    allowed = f'five fields such as "*/5 * * * *", or one of {", ".join(SCHEDULE_NAMES)}'
    if len(expression.split()) != 5:
        raise ValueError(f"a cron expression has {allowed}")
    try:
        CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(f"{error}: a cron expression has {allowed}") from None
    return expression


def parse_start(value: object) -> object:
    """``earliest``, ``latest`` or a time with its zone, which becomes UTC."""
    if isinstance(value, str) and value not in {"earliest", "latest"}:
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                '"earliest", "latest" or a time with its zone such as 2026-11-20T14:00:00Z'
            ) from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a start time needs its zone, such as 2026-11-20T14:00:00Z")
        return value.astimezone(UTC)
    return value


def check_exactly_once(delivery: object) -> object:
    """Say why a delivery that others have is none here."""
    if delivery in {"at_least_once", "at_most_once", "append", "streaming"}:
        raise ValueError(
            "counts are sums: what is delivered twice would be counted twice, and what is lost is "
            'missing; "batch" is the choice for counts, "rows" or "files" for single lines'
        )
    return delivery


def check_notifier(notifier: dict[str, Any]) -> dict[str, Any]:
    """It has a class, by its whole name."""
    if not isinstance(notifier.get("class"), str) or "." not in notifier["class"]:
        raise ValueError(
            "a notifier needs its class, such as "
            '{ class = "airflow.providers.smtp.notifications.smtp.SmtpNotifier", to = "…" }'
        )
    return notifier


def check_redaction(pattern: str) -> str:
    """A pattern whose matches have a bound."""
    try:
        parse_redaction(pattern)
    except ValueError as error:
        raise ValueError(f"{pattern!r} {error}") from error
    return pattern
