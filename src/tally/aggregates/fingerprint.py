"""The fingerprint of the rules by which lines are counted: equal rules have equal fingerprints."""

import hashlib
import json

from tally.config.pipeline import Pipeline


def fingerprint(pipeline: Pipeline) -> str:
    """What a pipeline counts, as a short stable string.

    It covers line format and levels, and time rule, filter, continuation lines, labels, measure and
    isolation level where they are set.
    Counts from before these settings existed therefore keep their fingerprint.
    """
    counted = f"{pipeline.format.fingerprint()} {sorted(set(pipeline.levels))}"
    if rule := pipeline.time_rule.fingerprint():
        counted += f" {rule}"
    if pipeline.filter:
        wanted = {key: sorted(set(values)) for key, values in pipeline.filter.items()}
        counted += f" filter {json.dumps(wanted, sort_keys=True)}"
    if pipeline.leaves_continuations:
        counted += " continuations unmatched, more beginnings malformed"
    if pipeline.labels:
        counted += f" labels {sorted(pipeline.labels)} {pipeline.label_max_chars}"
    if pipeline.measure != "count":
        counted += f" measure {pipeline.measure}"
    if not pipeline.reads_committed:
        counted += " records of open and aborted transactions"
    return hashlib.sha256(counted.encode()).hexdigest()[:16]
