"""By which rules lines are counted: what tells counts of one rule from those of another."""

import hashlib

from tally.config.pipeline import Pipeline


def fingerprint(pipeline: Pipeline) -> str:
    """What a pipeline counts, as a short stable string: the line format and the levels."""
    counted = f"{pipeline.format.fingerprint()} {sorted(set(pipeline.levels))}"
    return hashlib.sha256(counted.encode()).hexdigest()[:16]
