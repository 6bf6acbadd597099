"""By which rules lines are counted: what tells counts of one rule from those of another."""

import hashlib
import json

from tally.config.pipeline import Pipeline


def fingerprint(pipeline: Pipeline) -> str:
    """What a pipeline counts, as a short stable string.

    The line format and the levels; filter, labels and measure where there are any, so that what was
    counted before there were such keeps its fingerprint.
    """
    counted = f"{pipeline.format.fingerprint()} {sorted(set(pipeline.levels))}"
    if pipeline.filter:
        wanted = {key: sorted(set(values)) for key, values in pipeline.filter.items()}
        counted += f" filter {json.dumps(wanted, sort_keys=True)}"
    if pipeline.labels:
        counted += f" labels {sorted(pipeline.labels)} {pipeline.label_max_chars}"
    if pipeline.measure != "count":
        counted += f" measure {pipeline.measure}"
    return hashlib.sha256(counted.encode()).hexdigest()[:16]
