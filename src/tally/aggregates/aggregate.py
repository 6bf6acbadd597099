"""The aggregate: what a pipeline counts. Columns and statements are derived from it.

The window is the minute for every pipeline; labels and measure are configured. They decide how
Spark groups and what it adds up, and the columns of the result, of the contributions and of the
folded sums. The fingerprint identifies the rules by which lines are counted.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tally.config.names import label_column
from tally.config.pipeline import Pipeline

TIME: Final = "log_time"
"""The window: the minute of the line's own clock."""
LINES: Final = "log_count"
"""How many lines; a row without lines is deleted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """What is added up of the lines of a row besides their number."""

    name: str
    """Of its column in a group, and its unit in texts."""
    of_record: str
    """Spark's expression for a record of Kafka's: a whole number, not negative; null counts 0."""

    @property
    def column(self) -> str:
        """Of the result, the contributions and the folded sums; a key of JSON, too."""
        return f"log_{self.name}"


MEASURES: Final[Mapping[str, tuple[Measure, ...]]] = {
    "count": (),
    "bytes": (Measure(name="bytes", of_record="octet_length(value)"),),
}
"""What each value of the configuration's ``measure`` adds up besides lines."""


@dataclass(frozen=True, slots=True)
class Sum:
    """What is added up of the records of a group: one column of it."""

    name: str
    """Its name."""
    kind: Literal["count", "sum", "min", "max"]
    """How it follows from the rows of the group."""
    of: str
    """The column of the rows that it follows from."""

    @property
    def again(self) -> "Sum":
        """The same, of groups that hold it already."""
        return Sum(self.name, "sum" if self.kind == "count" else self.kind, self.name)


_OF_RECORDS: Final = (
    Sum("records", "count", "offset"),
    Sum("first_offset", "min", "offset"),
    Sum("last_offset", "max", "offset"),
    Sum("kept_bytes", "sum", "kept_bytes"),
)
_OF_GROUPS: Final = (
    *(sum_.again for sum_ in _OF_RECORDS),
    Sum("malformed", "sum", "malformed"),
    Sum("continuations", "sum", "continuations"),
    Sum("first_malformed", "min", "first_malformed"),
    Sum("last_malformed", "max", "last_malformed"),
)
_TIMES: Final = (Sum("first_s", "min", "first_s"), Sum("last_s", "max", "last_s"))
_TIMESTAMPS: Final = (Sum("first", "min", "timestamp"), Sum("last", "max", "timestamp"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregate:
    """Window, labels and measures of one pipeline."""

    labels: tuple[str, ...]
    """Labels as they are configured, in order: fields of the line or of the record."""
    columns: tuple[str, ...]
    """The column of each label."""
    label_chars: int
    """Unicode code points that are kept of a label's value."""
    measures: tuple[Measure, ...]
    """What is added up besides lines."""

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Columns of the labels in Spark; their own names might be those of Kafka's."""
        return tuple(f"label_{number}" for number, _ in enumerate(self.labels))

    @property
    def sums_of_records(self) -> tuple[Sum, ...]:
        """What is added up of records with the same key.

        Of columns ``offset``; ``kept_bytes``, of its value were it malformed; those of the
        measures; and, with labels, ``timestamp``.
        """
        return (*_OF_RECORDS, *self._measured, *(_TIMESTAMPS if self.labels else ()))

    @property
    def sums_of_groups(self) -> tuple[Sum, ...]:
        """What is added up of the groups of one minute.

        ``records``, ``malformed`` and ``continuations`` are numbers of records; ``first_offset``
        and ``last_offset`` those of all of them, ``first_malformed`` and ``last_malformed`` those
        of the malformed ones, or null; ``kept_bytes`` what is kept of their values. The measures
        follow; with labels also ``first_s`` and ``last_s``, the Unix times of the first and the
        last record.
        """
        return (*_OF_GROUPS, *self._measured, *(_TIMES if self.labels else ()))

    @property
    def _measured(self) -> tuple[Sum, ...]:
        return tuple(Sum(measure.name, "sum", measure.name) for measure in self.measures)

    @classmethod
    def of(cls, pipeline: Pipeline) -> "Aggregate":
        """What a pipeline counts, by its configuration."""
        return cls(
            labels=tuple(pipeline.labels),
            columns=tuple(label_column(label) for label in pipeline.labels),
            label_chars=pipeline.label_max_chars,
            measures=MEASURES[pipeline.measure],
        )


def fingerprint(pipeline: Pipeline) -> str:
    """What a pipeline counts, as a short stable string.

    It covers line format and levels, and time rule, filter, continuation lines, labels, measure,
    redaction and isolation level where they are set.
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
    if pipeline.redact:
        counted += f" redacted {pipeline.redact}"
    if not pipeline.reads_committed:
        counted += " records of open and aborted transactions"
    return hashlib.sha256(counted.encode()).hexdigest()[:16]
