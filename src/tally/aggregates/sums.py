"""What is added up of the records of a group, whoever adds it up: Spark, or a task by itself."""

from dataclasses import dataclass
from typing import Final, Literal

from tally.aggregates.aggregate import Aggregate


@dataclass(frozen=True, slots=True)
class Sum:
    """One column of a group."""

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
)
_OF_GROUPS: Final = (
    *(sum_.again for sum_ in _OF_RECORDS),
    Sum("malformed", "sum", "malformed"),
    Sum("continuations", "sum", "continuations"),
    Sum("first_malformed", "min", "first_malformed"),
    Sum("last_malformed", "max", "last_malformed"),
)
_BYTES: Final = Sum("bytes", "sum", "octets")
_TIMES: Final = (Sum("first_s", "min", "first_s"), Sum("last_s", "max", "last_s"))
_TIMESTAMPS: Final = (Sum("first", "min", "timestamp"), Sum("last", "max", "timestamp"))


def sums_of_records(aggregate: Aggregate) -> tuple[Sum, ...]:
    """What is added up of records with the same key.

    Of columns ``offset``; ``octets``, the length of the value, where bytes are counted; and, with
    labels, ``timestamp``.
    """
    return (
        *_OF_RECORDS,
        *([_BYTES] if aggregate.has_bytes else []),
        *(_TIMESTAMPS if aggregate.labels else []),
    )


def sums_of_groups(aggregate: Aggregate) -> tuple[Sum, ...]:
    """What is added up of the groups of one minute.

    ``records``, ``malformed`` and ``continuations`` are numbers of records; ``first_offset`` and
    ``last_offset`` those of all of them, ``first_malformed`` and ``last_malformed`` those of the
    malformed ones, or null. ``bytes`` is there where it is measured; with labels also ``first_s``
    and ``last_s``, the Unix times of the first and the last record.
    """
    return (
        *_OF_GROUPS,
        *([_BYTES.again] if aggregate.has_bytes else []),
        *(_TIMES if aggregate.labels else []),
    )
