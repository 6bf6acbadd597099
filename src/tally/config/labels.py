"""Labels, filters and their limits: how a pipeline may group its counts."""

import re
from collections.abc import Sequence
from typing import Final

LABELS_MAX: Final = 8
LABEL_CHARS_MAX: Final = 700
"""Code points of all labels together: MySQL's keys end at 3,072 bytes."""

LEVEL: Final = "level"
TEXT: Final = "text"
FILTER_STARS_MAX: Final = 100
"""Times that ``*`` may stand in one value of a filter: Java looks for the parts by recursion."""
RECORD_FIELDS: Final = ("topic", "partition", "key")
"""What Kafka knows of a record, whatever its line says."""

_NAME: Final = re.compile(r"[A-Za-z@_][A-Za-z0-9@_-]*(?:\.[A-Za-z@_][A-Za-z0-9@_-]*)*")
_COLUMN: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TAKEN: Final = frozenset({"log_time", "log_count", "log_bytes", "segment_id", "pipeline"})


def label_column(label: str) -> str:
    """The column of a label: lower case, every other character an underscore.

    ``kubernetes.pod-name`` stands in ``kubernetes_pod_name``.
    """
    return re.sub(r"[^a-z0-9_]", "_", label.lower())


def check_label(label: str) -> str:
    """Raise ValueError unless a label has a name that can be one."""
    if not _NAME.fullmatch(label):
        raise ValueError(
            "a label is the name of a field: letters, digits, _, - and @, a dot between nested ones"
        )
    column = label_column(label)
    if not _COLUMN.fullmatch(column) or column in _TAKEN:
        raise ValueError(f"a label's column cannot be called {column}")
    if label == TEXT:
        raise ValueError("the whole text is no label; name a group of the pattern or a field")
    return label


def check_labels(labels: list[str]) -> list[str]:
    """Raise ValueError unless labels can stand beside each other; returns them."""
    if len(labels) > LABELS_MAX:
        raise ValueError(f"{len(labels)} labels are more than {LABELS_MAX}")
    columns: dict[str, str] = {}
    for label in labels:
        column = label_column(label)
        if column in columns:
            raise ValueError(f"{columns[column]} and {label} would share the column {column}")
        columns[column] = label
    return labels


def check_label_chars(labels: Sequence[str], chars: int) -> None:
    """Raise ValueError unless the labels' values fit into a key of MySQL together."""
    if len(labels) * chars > LABEL_CHARS_MAX:
        raise ValueError(
            f"{len(labels)} labels of label_max_chars = {chars} are more than "
            f"{LABEL_CHARS_MAX} characters together, which is what a key of MySQL holds"
        )
