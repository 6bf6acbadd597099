"""What time it is. Called through the module, so that a test moves the clock in one place."""

from datetime import UTC, datetime


def now() -> datetime:
    """Now, with its zone: UTC."""
    return datetime.now(UTC)


def utc_now() -> datetime:
    """The same without its zone, as MySQL's ``datetime`` takes it."""
    return now().replace(tzinfo=None)
