"""A pipeline: its topics, line format, levels, result table and the options of its reader."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Final, Literal, get_args

from cronsim import CronSim
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, model_validator

from tally.config import names, values
from tally.config.servers import READER_DEFAULTS, Option, Section, check_reader_options
from tally.lines.format import LineFormat
from tally.lines.parsing import line_format_of
from tally.lines.redaction import parse_redaction
from tally.lines.time_rule import TimeRule, check_zone

KEEPS_LINES: Final = ("rows", "procedure", "files")
"""The deliveries that keep each counted line."""


def _check_filter_key(key: str) -> str:
    return key if key == names.TEXT else _check_label(key)


def _check_label(label: str) -> str:
    return names.check_label(label, [f"log_{measure}" for measure in get_args(Measure)])


FilterKey = Annotated[str, AfterValidator(_check_filter_key)]
Label = Annotated[str, AfterValidator(_check_label)]
Topic = Annotated[str, AfterValidator(names.check_topic)]
Level = Annotated[str, AfterValidator(values.check_level)]
Measure = Literal["count", "bytes"]


class Pipeline(Section):
    """One pipeline: topics, line format, levels, result table."""

    _name: str = PrivateAttr(default="")

    topics: Annotated[list[Topic], Field(min_length=1), AfterValidator(values.check_distinct)]
    """Topics whose lines are counted together."""
    start: Annotated[
        Literal["earliest", "latest"] | datetime, BeforeValidator(values.parse_start)
    ] = "earliest"
    """Where counting begins in a topic that is new to the pipeline: `earliest`, `latest` or a time
    with its zone (the first record at or after it)."""
    line_format: str | dict[str, Any] = "fixed"
    """Name of a ready-made format, or a table with `name`, `pattern`, `json` or `logfmt`, with
    `time_format` where the lines have a time, and with options; see docs/line-formats.md."""
    time: Literal["line", "instant", "record"] = "line"
    """What puts a line into a minute: the time that it states; the `instant` of that time and the
    offset after it (`Z`, `+02:00`), shown in `time_zone`; or Kafka's timestamp of its `record`."""
    time_zone: Annotated[str, AfterValidator(check_zone)] | None = None
    """Time zone in which instants and Kafka's timestamps are shown, such as `Europe/Berlin`; UTC
    when not set. A wall clock is never shifted: it says in which zone that is, which decides when a
    minute is complete."""
    assume_year: Annotated[int, Field(ge=1000, le=9999)] | Literal["from_record"] | None = None
    """Year of lines that print none: a number, or `from_record`: the latest year in which the line
    is at most 7 days ahead of its record's timestamp."""
    levels: list[Level] = ["ERROR"]
    """Levels that are counted, as they stand in the line. Empty: all lines, also without one."""
    filter: dict[FilterKey, Annotated[list[str], Field(min_length=1)]] = {}
    """Count only lines that have one of these values, by field: `level`, a group of the pattern, a
    field or a path of JSON lines, `topic`, `partition`, `key` or `text`, as in `{ status = ["5*"]
    }`; see docs/labels.md. Several fields must all agree."""
    labels: Annotated[list[Label], AfterValidator(names.check_labels)] = []
    """Count by these fields besides the minute; each becomes a column of the result table. Named as
    in `filter`, without `text`."""
    label_max_chars: Annotated[int, Field(ge=1, le=700)] = 64
    """Unicode code points that are kept of a label's value; 700 at most for all labels together."""
    max_series_per_batch: Annotated[int, Field(ge=1, le=100_000_000)] = 100_000
    """Rows of minutes and labels that the records of one minute may give. With more the batch stops
    before anything is written."""
    measure: Measure = "count"
    """`count`: lines. `bytes`: also the sum of their values' lengths, in the column `log_bytes`."""
    result_table: Annotated[str, AfterValidator(names.check_result_table)] | None = None
    """Table of the counts; the pipeline's name when not set."""
    # All of a range may fall into one minute, which the ledger counts in an INT of MySQL.
    max_records_per_partition: Annotated[int, Field(ge=1, le=2_000_000_000)] = 5_000_000
    """Offsets that one batch takes from one partition at most; a backlog is cut into several."""
    continuation_lines: Literal["malformed", "unmatched"] = "malformed"
    """What a record is that begins no line, such as one of a stack trace. `unmatched`: it is not
    counted and no dead letter; see docs/line-formats.md."""
    max_malformed_per_batch: Annotated[int, Field(ge=0)] = 100_000
    """Malformed records that a batch may hold; with more it stops: the format is probably wrong."""
    max_malformed_ratio: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of malformed records, 0 to 1. The first batches under new rules stop when a larger
    share of 1,000 records or more is malformed; later it is a warning of the health."""
    dead_letter_max_bytes: Annotated[int, Field(ge=0, le=16_777_215)] = 16_384
    """Bytes of a malformed record that are kept; its whole length is always recorded."""
    redact: list[Annotated[str, AfterValidator(values.check_redaction)]] = []
    r"""Patterns, such as `'\d{13,19}'`, as in line formats, with bounded repeats: each match is
    replaced by `***` in what is stored of a line: dead letters, kept lines and labels."""
    delivery: Annotated[
        Literal["batch", "partition", "rows", "procedure", "files"],
        BeforeValidator(values.check_exactly_once),
    ] = "batch"
    """What is committed together: the counts and offsets of all partitions (`batch`), or of each
    partition by itself (`partition`); the others also keep each counted line, as a row (`rows`), by
    a stored procedure (`procedure`) or in Parquet files (`files`); see docs/delivery.md."""
    rows_table: Annotated[str, AfterValidator(names.check_result_table)] | None = None
    """The view of the kept lines; when not set, `<result table>_rows`, or with `delivery = "files"`
    `<result table>_files`."""
    row_key: list[Label] = []
    """With `delivery = "rows"` or `"procedure"`: fields that together identify a line, such as
    `["request_id"]`; of lines with the same values the view has only the first. A line that lacks
    one of them is always there."""
    row_procedure: Annotated[str, AfterValidator(names.check_result_table)] | None = None
    """With `delivery = "procedure"`: the stored procedure that writes the rows; `<rows_table>_keep`
    when not set."""
    files_url: Annotated[str, AfterValidator(names.check_files_url)] | None = None
    """With `delivery = "files"`: the folder of the files, as a path or as a URL such as
    `s3://BUCKET/FOLDER`; the driver and all executors must see the same."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether records of open and aborted transactions are left out. After a change a replay counts
    again; it leaves out records only of what was counted by `read_uncommitted` and otherwise the
    same rules, and of no compacted topic: change no other rule at once."""
    offsets: Literal["dense", "sparse"] = "dense"
    """`dense`: an offset without a record inside a range is data loss. `sparse`: offsets may be
    missing, as with transactions and in compacted topics."""
    reader: Annotated[dict[str, Option], AfterValidator(check_reader_options)] = {}
    """Options of Spark's Kafka reader, over Tally's own defaults. With any of them Spark reads also
    what a consumer of the driver would read."""
    schedule: Annotated[str, AfterValidator(values.check_schedule)] = "* * * * *"
    """When Airflow starts a batch, in UTC: a cron expression of five fields, or `@hourly` etc."""
    patience_s: Annotated[int, Field(ge=30, le=86_400)] = 600
    """Seconds the count of one batch may take; more than `mysql.statement_timeout_s`. The other
    timeouts of a run follow from it."""
    lateness_s: Annotated[int, Field(ge=0, le=86_400)] = 60
    """Seconds after its own time within which a line reaches Kafka: a minute is complete when all
    is counted that Kafka had so long after its end."""
    alert_above: Annotated[int, Field(ge=0)] | None = None
    """Lines of a complete minute; more raise an alert."""
    alert_below: Annotated[int, Field(ge=1)] | None = None
    """Lines of a complete minute; fewer raise an alert."""
    alert_counted_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the lines of the latest batches that are counted; more raise an alert."""
    alert_silent_minutes: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Minutes without a new record; more raise an alert."""
    notifiers: list[Annotated[dict[str, Any], AfterValidator(values.check_notifier)]] = []
    """Airflow's notifiers of alerts: each has its `class` and its arguments, in which
    `{{ alert.text }}` says what is wrong; see docs/airflow.md."""
    max_lag_offsets: Annotated[int, Field(ge=0)] | None = None
    """Offsets that may wait to be counted; more are a warning of the health."""
    prune_after_days: Annotated[int, Field(ge=0, le=36_500)] = 14
    """Age in days at which the daily DAG prunes, after a green audit. 0: never."""
    erase_after_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    """Age in days at which the daily DAG erases the text of dead letters and kept lines; their
    offsets and minutes stay. 0: never."""
    owner: Annotated[str, Field(min_length=1)] = "tally"
    """Owner of the DAGs."""
    tags: list[str] = []
    """Further tags of the DAGs."""

    @model_validator(mode="after")
    def _labels_fit_into_a_key(self) -> "Pipeline":
        if len(self.labels) * self.label_max_chars > names.LABEL_CHARS_MAX:
            raise ValueError(
                f"{len(self.labels)} labels of label_max_chars = {self.label_max_chars} are more "
                f"than {names.LABEL_CHARS_MAX} characters together, which is what a key of MySQL "
                "holds"
            )
        return self

    @classmethod
    def named(cls, name: str, keys: Any) -> "Pipeline":
        """The pipeline of these keys.

        Args:
            name: The key under ``[pipelines]``.
            keys: A mapping, or a pipeline that has another name or none.

        Raises:
            ValidationError: A key is wrong.
        """
        pipeline = cls.model_validate(keys).model_copy()
        pipeline._name = name  # noqa: SLF001 - its own
        return pipeline

    @property
    def name(self) -> str:
        """The key under ``[pipelines]``."""
        return self._name

    @property
    def has_alerts(self) -> bool:
        """Whether a limit is set."""
        limits = ("alert_above", "alert_below", "alert_counted_share", "alert_silent_minutes")
        return any(getattr(self, key) is not None for key in limits)

    @property
    def format(self) -> LineFormat:
        """The line format, parsed."""
        return line_format_of(self.line_format)

    @property
    def time_rule(self) -> TimeRule:
        """How the minute follows from a line and its record."""
        has_zone = self.time != "line" or self.format.states_instant
        return TimeRule(
            from_record=self.time == "record",
            by_offset=self.time == "instant",
            assume_year=self.assume_year,
            zone=self.time_zone if has_zone else None,
        )

    @property
    def redaction(self) -> str:
        """What is never stored, as one pattern for Java; '' for nothing.

        By one after the other, a match of the first would hide one of the second.
        """
        return "|".join(f"(?:{parse_redaction(pattern)})" for pattern in self.redact)

    @property
    def leaves_continuations(self) -> bool:
        """Whether a record that begins no line is unmatched instead of malformed."""
        return self.continuation_lines == "unmatched"

    @property
    def reads_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation_level == "read_committed"

    @property
    def rules(self) -> str:
        """Which lines are counted, in words: ``levels ERROR, WARN; format fixed``."""
        noun = "level" if len(self.levels) == 1 else "levels"
        parts = [f"{noun} {', '.join(self.levels)}" if self.levels else "any level"]
        parts += [f"{key} {' or '.join(values)}" for key, values in self.filter.items()]
        parts += [f"by {', '.join(self.labels)}"] if self.labels else []
        parts += [f"{self.measure} besides lines"] if self.measure != "count" else []
        parts += [f"{', '.join(self.redact)} redacted"] if self.redact else []
        parts += ["without continuation lines"] if self.leaves_continuations else []
        parts += [] if self.reads_committed else ["with open and aborted transactions"]
        rule = self.time_rule.fingerprint()
        more = filter(None, [self.format.options.fingerprint(), rule])
        return "; ".join([*parts, f"format {self.format.name}", *more])

    @property
    def reader_options(self) -> dict[str, str]:
        """Options of Spark's Kafka reader: Tally's defaults under the pipeline's own."""
        return {**READER_DEFAULTS, **self.reader}

    @property
    def table(self) -> str:
        """The result table."""
        return self.result_table or self.name

    def due_before(self, now: datetime, grace_s: int) -> datetime:
        """What waits since then is late: two starts of the schedule and this many seconds ago."""
        expression = values.SCHEDULE_NAMES.get(self.schedule, self.schedule)
        starts = CronSim(expression, now, reverse=True)
        return next(islice(starts, 1, None)) - timedelta(seconds=grace_s)

    @property
    def has_own_tables(self) -> bool:
        """Whether its contributions have columns that those of other pipelines do not have."""
        return bool(self.labels) or self.measure != "count"

    @property
    def commits_by_partition(self) -> bool:
        """Whether each partition is a batch by itself."""
        return self.delivery != "batch"

    @property
    def rows_view(self) -> str | None:
        """The view of the lines, or of their files; None when they are not kept."""
        if self.delivery not in KEEPS_LINES:
            return None
        suffix = names.FILES_SUFFIX if self.delivery == "files" else names.ROWS_SUFFIX
        return self.rows_table or self.table + suffix

    @property
    def line_rights(self) -> Mapping[str, Sequence[str]]:
        """The tables of kept lines, and the rights on each that counting needs."""
        if self.rows_view is None:
            return {}
        rights: dict[str, Sequence[str]] = {self.rows_view + names.SETS_SUFFIX: names.RIGHTS}
        if self.delivery != "files":
            on_kept = names.RIGHTS if self.delivery == "rows" else ("select", "delete")
            rights[self.rows_view + names.KEPT_SUFFIX] = on_kept
        return rights

    @property
    def procedure(self) -> str | None:
        """The stored procedure that writes the lines; None when statements or files do."""
        if self.delivery != "procedure":
            return None
        return self.row_procedure or f"{self.rows_view}{names.PROCEDURE_SUFFIX}"

    @property
    def is_sparse(self) -> bool:
        """Whether offsets may be missing inside a range."""
        return self.offsets == "sparse"
