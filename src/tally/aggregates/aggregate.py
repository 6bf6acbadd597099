"""The aggregate: what a pipeline counts. Columns and statements are derived from it.

The window is the minute for every pipeline; labels and measure are configured. They decide how
Spark groups and what it adds up, and the columns of the result, of the contributions and of the
folded sums. Which lines are counted (levels, filter) is in :mod:`tally.aggregates.fingerprint`.
"""

from dataclasses import dataclass
from typing import Final

from tally.config.names import label_column
from tally.config.pipeline import Pipeline

TIME: Final = "log_time"
"""The window: the minute of the line's own clock."""
LINES: Final = "log_count"
"""How many lines; a row without lines is deleted."""
BYTES: Final = "log_bytes"
"""Sum of the values' lengths; a record without a value has 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregate:
    """Window, labels and measure of one pipeline."""

    labels: tuple[str, ...]
    """Labels as they are configured, in order: fields of the line or of the record."""
    columns: tuple[str, ...]
    """The column of each label."""
    label_chars: int
    """Unicode code points that are kept of a label's value."""
    has_bytes: bool
    """Whether the lengths of the values are added up beside the lines."""

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Columns of the labels in Spark; their own names might be those of Kafka's."""
        return tuple(f"label_{number}" for number, _ in enumerate(self.labels))

    @classmethod
    def of(cls, pipeline: Pipeline) -> "Aggregate":
        """What a pipeline counts, by its configuration."""
        return cls(
            labels=tuple(pipeline.labels),
            columns=tuple(label_column(label) for label in pipeline.labels),
            label_chars=pipeline.label_max_chars,
            has_bytes=pipeline.measure == "bytes",
        )
