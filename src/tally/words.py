"""Numbers in sentences."""


def plural(count: int, noun: str) -> str:
    """``1 batch``, ``2 batches``, ``1,000 records``."""
    suffix = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else suffix}"
