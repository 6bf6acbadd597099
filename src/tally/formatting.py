"""Numbers and times in sentences."""


def plural(count: int, noun: str) -> str:
    """``1 batch``, ``2 batches``, ``1,000 records``."""
    suffix = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else suffix}"


def time_span(first: str | None, last: str | None) -> str:
    """``2026-11-20 14:05``, or from the one to the other."""
    return f"{first}" if first == last else f"{first} to {last}"
