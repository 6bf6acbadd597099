"""What becomes of one record, by the configuration and by Python.

Spark counts; this is a second way to the same answer, record by record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tally.aggregates.aggregate import Aggregate
from tally.aggregates.counts import DeadLetter
from tally.aggregates.spool import CHUNK, Spool
from tally.config.names import LEVEL, RECORD_FIELDS, TEXT
from tally.config.pipeline import Pipeline
from tally.lines.format import Accepted, MalformedReason
from tally.lines.json_reading import json_field, read_object
from tally.lines.reading import (
    LineReading,
    Record,
    at_micros,
    begins_a_line,
    minute_at,
    read_line,
)
from tally.lines.redaction import REPLACEMENT, cut_fields, redacted
from tally.lines.time_rule import continuation_reasons
from tally.model import TopicPartition

_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What becomes of a record."""

    reason: MalformedReason | None
    """Why it is a dead letter; None for one that is none."""
    minute: str | None
    """Its minute, ``YYYY-MM-DD HH:MM:00``, as far as it says one."""
    is_counted: bool
    """Whether it is counted in its minute."""
    continues: bool
    """Whether it continues another line, and is left out."""
    labels: tuple[str, ...] = ()
    """Its values of the labels, in order; empty unless it is counted."""


def judge(pipeline: Pipeline, partition: TopicPartition, record: Record) -> Judgement:
    """What becomes of a record."""
    read = read_line(
        record.value,
        pipeline.format,
        pipeline.time_rule,
        record.micros,
        needs_level=bool(pipeline.levels),
    )
    if read.reason is not None:
        continues = pipeline.leaves_continuations and _continues(pipeline, read, record.value)
        return Judgement(
            reason=None if continues else read.reason,
            minute=read.minute,
            is_counted=False,
            continues=continues,
        )
    fields = Fields(pipeline, partition, record, read)
    is_counted = (not pipeline.levels or read.level in pipeline.levels) and fields.are_wanted
    return Judgement(
        reason=None,
        minute=read.minute,
        is_counted=is_counted,
        continues=False,
        labels=fields.labels if is_counted else (),
    )


def dead_letters_in(folder: Path | None, pipeline: Pipeline) -> Spool[DeadLetter]:
    """A spool for malformed records, which become dead letters with their minute if it is known.

    Args:
        folder: Where its file is.
        pipeline: By which rules they are malformed.

    Returns:
        The spool. Appended are the partition and offset of a record, what is wrong with it, the
        first bytes of its value, how many it has, and its timestamp in microseconds since 1970.
    """
    line_format, rule = pipeline.format, pipeline.time_rule
    by_record = replace(rule, zone=pipeline.time_zone)

    def make(
        partition: TopicPartition,
        offset: int,
        reason: str,
        value: bytes | None,
        value_bytes: int | None,
        micros: int,
    ) -> DeadLetter:
        log_time = None
        if reason == MalformedReason.NO_LEVEL:  # its time could be read, unless it is cut
            log_time = read_line(value, line_format, rule, micros, needs_level=True).minute
        if log_time is None:
            log_time = minute_at(micros, by_record)
        written_at = None if log_time is None or micros < 0 else at_micros(micros)
        return DeadLetter(
            partition=partition,
            offset=offset,
            reason=reason,
            value=value,
            value_bytes=value_bytes,
            written_at=written_at,
            log_time=log_time,
        )

    chunk = max(1, min(CHUNK, _CHUNK_BYTES // max(1, pipeline.dead_letter_max_bytes)))
    return Spool(folder=folder, chunk=chunk, make=make)


def _continues(pipeline: Pipeline, read: LineReading, value: bytes | None) -> bool:
    begins_none = read.reason in continuation_reasons(pipeline.format, pipeline.time_rule)
    return begins_none and not begins_a_line(pipeline.format, value or b"")


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a record that is understood."""

    pipeline: Pipeline
    """Which of them are asked for."""
    partition: TopicPartition
    """Where it is."""
    record: Record
    """The record."""
    read: LineReading
    """What it says."""

    def find(self, names: Sequence[str]) -> Mapping[str, str]:
        """Fields by their names, Kafka's or the line's; '' for one that it does not have."""
        known = {
            "key": (self.record.key or b"").decode(errors="replace"),
            "topic": self.partition.topic,
            "partition": str(self.partition.partition),
        }
        line_format = self.pipeline.format
        texts = self.read.texts
        if line_format.is_json and set(names) - known.keys():
            line = line_format.options.line_of(self.record.value or b"")
            document = read_object(line, with_nan=Accepted.NAN in line_format.options) or {}
            texts = {n: json_field(document, line_format.paths_of(n)) or "" for n in names}
        if not line_format.is_fixed:
            known = {LEVEL: self.read.level, **known}
        return {name: known.get(name, texts.get(name, "")) for name in names}

    @property
    def labels(self) -> tuple[str, ...]:
        """The values of the labels, in the order of their columns."""
        names, never = Aggregate.of(self.pipeline).labels, self.pipeline.redact
        found = self.find(names) if names else {}
        if never:
            found = {name: redacted(text, never) for name, text in found.items()}
            cut = cut_fields(self.pipeline.format, self.record.value or b"")
            found |= {n: REPLACEMENT for n in cut if n in found and n not in RECORD_FIELDS}
        return tuple(found[name][: self.pipeline.label_max_chars] for name in names)

    @property
    def are_wanted(self) -> bool:
        """Whether the filter lets the record pass."""
        wanted = self.pipeline.filter
        names = [name for name in wanted if name != TEXT]
        found = self.find(names) if names else {}
        line = self.pipeline.format.options.line_of(self.record.value or b"")
        texts = [value.encode() for value in wanted.get(TEXT, ())]
        return (not texts or any(text in line for text in texts)) and all(
            any(is_value(found[name], value) for value in wanted[name]) for name in names
        )


def is_value(text: str, value: str) -> bool:
    """Whether a text is a value of a filter, ``*`` standing for any characters."""
    first, *middle = value.split("*")
    if not middle:
        return text == value
    *middle, last = middle
    if not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return at <= end
