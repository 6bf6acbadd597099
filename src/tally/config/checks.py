"""What must hold between the keys of a pipeline, and between them and those of the servers."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, Self

from tally.config import names
from tally.config.pipeline import KEEPS_LINES, Pipeline
from tally.config.servers import DIVIDING, KafkaSettings, MySQLSettings
from tally.errors import ConfigError
from tally.formatting import close_to
from tally.lines.format import LineFormat
from tally.lines.parsing import parse_line_format
from tally.lines.time_rule import check_time_rule, continuation_reasons

_HOW_LINES_ARE_READ: Final = frozenset({"line_format", "time", "time_zone", "assume_year"})
_KEYS_OF: Final = {
    "rows_table": KEEPS_LINES,
    "row_key": ("rows", "procedure"),
    "row_procedure": ("procedure",),
    "files_url": ("files",),
}
"""The deliveries that know some keys."""


def mistakes(
    pipeline: Pipeline,
    servers: tuple[MySQLSettings, KafkaSettings] | None,
    wrong: Collection[str],
) -> Iterator[str]:
    """A sentence for each combination of keys that cannot be meant.

    Args:
        pipeline: Its keys are each valid by themselves.
        servers: With their time-outs; None where their keys are wrong: then only what is asked of
            the lines is looked at.
        wrong: Keys that are wrong and have their defaults here; what follows from these is left
            out.
    """
    path = f"pipelines.{pipeline.name}"
    found: list[Iterator[str]] = []
    try:
        line_format = parse_line_format(pipeline.line_format, key=f"{path}.line_format")
    except ConfigError as error:
        yield error.what
    else:
        if _HOW_LINES_ARE_READ.isdisjoint(wrong):
            found.append(_about_lines(pipeline, line_format))
    if servers is not None:
        if "delivery" not in wrong:
            found.append(_about_delivery(pipeline))
        found.append(_about_patience(pipeline, *servers))
    for sentence in chain.from_iterable(found):  # it begins with the key
        if re.split(r"\W", sentence, maxsplit=1)[0] not in wrong:
            yield f"{path}.{sentence}"


def _about_lines(pipeline: Pipeline, line_format: LineFormat) -> Iterator[str]:
    try:
        check_time_rule(line_format, pipeline.time_rule)
    except ValueError as error:
        yield f"line_format: {line_format.name} {error}"
    try:
        line_format.printed_levels(pipeline.levels)
    except ValueError as error:
        yield f"levels = {pipeline.levels!r}: {error}"
    if pipeline.leaves_continuations and not continuation_reasons(line_format, pipeline.time_rule):
        yield (
            'continuation_lines = "unmatched": in the fixed layout the time tells where a line '
            'begins, and time = "record" does not look at it: leave one of them out'
        )
    yield from _hidden_fields(pipeline, line_format)
    filters = {field: of for field, of in pipeline.filter.items() if field != names.TEXT}
    yield from _unknown_fields("labels", pipeline.labels, line_format)
    yield from _unknown_fields("row_key", pipeline.row_key, line_format)
    yield from _unknown_fields("filter", list(filters), line_format)
    for field, values in filters.items():
        for value in values:
            if (stars := len(re.findall(r"\*+", value))) > names.FILTER_STARS_MAX:
                told = f"has * {stars} times, which is more than {names.FILTER_STARS_MAX}"
                yield f"filter.{field}: {value[:20]!r}… {told}"


def _hidden_fields(pipeline: Pipeline, line_format: LineFormat) -> Iterator[str]:
    """A field of the line with the name of one of the record's would be unreachable."""
    taken = (*names.RECORD_FIELDS, names.TEXT)
    kind, asked = "json", set(taken)
    if line_format.pattern:  # a group may have any name, as long as nothing is asked of it
        kind, asked = "pattern", {*pipeline.labels, *pipeline.row_key, *pipeline.filter}
    if hidden := [f for f in line_format.fields if f in taken and f in asked]:
        yield (
            f"line_format.{kind}: {', '.join(hidden)}: {', '.join(taken)} are not the line's "
            "fields but the record's: give the field another name"
        )


def _unknown_fields(key: str, fields: Sequence[str], line_format: LineFormat) -> Iterator[str]:
    """Labels and filters must name fields of the lines, or their values would silently be empty."""
    of_record = names.RECORD_FIELDS
    known = (*line_format.fields, *of_record)
    if unknown := [f for f in fields if f not in of_record and not line_format.has_field(f)]:
        others = ", or any other path" if line_format.is_json else ""
        yield (
            f"{key}: {', '.join(unknown)}: lines of the format {line_format.name} have no such "
            f"field{close_to(unknown[0], known)}; there are {', '.join(known)}{others}"
        )


def _about_delivery(pipeline: Pipeline) -> Iterator[str]:
    """Keys that another delivery has; and several tasks that would read one partition."""
    for key, deliveries in _KEYS_OF.items():
        if getattr(pipeline, key) and pipeline.delivery not in deliveries:
            known = " and ".join(f'"{delivery}"' for delivery in deliveries)
            choice = "it" if len(deliveries) == 1 else "one of them"
            yield f"{key}: only delivery = {known} knows it: choose {choice}, or leave {key} out"
    if pipeline.delivery == "files" and pipeline.files_url is None:
        yield 'files_url is missing: delivery = "files" needs the folder of the files'
    dividing = [k for k in pipeline.reader if k.lower() in DIVIDING]
    if dividing and pipeline.delivery != "batch":
        yield (
            f"reader.{dividing[0]}: it divides a partition between Spark tasks, and delivery = "
            f'"{pipeline.delivery}" commits each partition from the one task that reads it: leave '
            'the option out, or choose delivery = "batch"'
        )


def _about_patience(
    pipeline: Pipeline, mysql: MySQLSettings, kafka: KafkaSettings
) -> Iterator[str]:
    """The wait for a server's answer must be shorter than the batch's own timeout."""
    waits = {
        "mysql.statement_timeout_s": mysql.statement_timeout_s,
        "mysql.connect_timeout_s": mysql.connect_timeout_s,
        "kafka.request_timeout_s": kafka.request_timeout_s,
    }
    for wait, seconds in waits.items():
        if seconds >= pipeline.patience_s:
            yield (
                f"patience_s = {pipeline.patience_s} must be more than {wait} = {seconds:g}: a "
                "batch would be killed while it waits for an answer"
            )


class Taken(NamedTuple):
    """What one pipeline has, and no other may."""

    table: str
    """Its result table."""
    procedure: str | None
    """The procedure that writes its lines."""
    folder: str | None
    """The folder of its files, with a slash at its end."""
    relations: frozenset[str]
    """Its table and its views."""

    @classmethod
    def by(cls, pipeline: Pipeline) -> Self:
        """What a pipeline has."""
        table = pipeline.table
        relations = {table, pipeline.rows_view, table + names.MINUTES_SUFFIX}
        folder = f"{pipeline.files_url}/" if pipeline.files_url else None
        return cls(table, pipeline.procedure, folder, frozenset(filter(None, relations)))

    def shared(self, other: Self) -> str:
        """What two pipelines have in common; '' for nothing."""
        if self.table == other.table:
            return f"result_table {self.table}"
        if self.procedure is not None and self.procedure == other.procedure:
            return f"row_procedure {self.procedure}, which writes the lines of one"
        if self.folder and other.folder:
            outer, inner = sorted([self.folder, other.folder], key=len)
            if inner.startswith(outer):
                return f"folder {outer.rstrip('/')} in files_url"
        same = self.relations & other.relations
        return f"table or view {min(same)}" if same else ""


def mistaken_names(
    pipeline: Pipeline, pipelines: Mapping[str, Pipeline], taken: Mapping[str, Taken]
) -> list[str]:
    """What is wrong with the names of a pipeline and of its table.

    Args:
        pipeline: The pipeline.
        pipelines: All of them.
        taken: What those before it have, by name.
    """
    name = pipeline.name
    if not names.MYSQL_NAME.fullmatch(name):
        wrong = "a pipeline's name is lower-case letters, digits and underscores"
        return [f"pipelines.{name}: {wrong}"]
    try:
        names.check_result_table(pipeline.table)
        if pipeline.has_own_tables:
            names.tables_beside(pipeline.table)  # whose names must not be too long
        if pipeline.rows_view is not None:
            names.check_rows_view(pipeline.rows_view)
    except ValueError as error:
        return [f"pipelines.{name}: {error}"]
    for suffix, done in names.DAG_SUFFIXES.items():
        if (other := name.removesuffix(suffix)) != name and other in pipelines:
            used = f"Airflow's DAG of this name is the one in which {other} is {done}"
            return [f"pipelines.{name}: {used}: give the pipeline another name"]
    own = Taken.by(pipeline)
    for other, of_other in taken.items():
        if shared := of_other.shared(own):
            return [f"pipelines {other} and {name} have the same {shared}"]
    return []
