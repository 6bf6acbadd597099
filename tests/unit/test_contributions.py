"""Contributions as rows of a pipeline's tables."""

import pytest

from tally.aggregates.aggregate import Aggregate
from tally.ledger.contributions import rows_of
from tally.ledger.tables import LabelColumn, Tables
from tally.model import Contribution, TopicPartition

PARTITION = TopicPartition(topic="alog", partition=0)
MINUTE = "2017-07-30 14:09:00"
LABELLED = Aggregate(
    labels=("service", "level"), columns=("service", "level"), label_chars=64, has_bytes=True
)


def contribution(*labels: str) -> Contribution:
    """Three lines of a minute."""
    return Contribution(
        partition=PARTITION, log_time=MINUTE, log_count=3, labels=labels, log_bytes=90
    )


def test_a_row_has_the_order_of_the_tables_columns() -> None:
    """Label columns keep the order in which they were added, whatever the configured order.

    Without bytes, and with a label that was taken out, too.
    """
    for columns, has_bytes, key, sums in (
        (("service", "level"), True, ("cart", "ERROR"), (3, 90)),
        (("level", "service"), False, ("ERROR", "cart"), (3,)),
        (("host", "level", "service"), True, ("", "ERROR", "cart"), (3, 90)),
    ):
        labels = tuple(LabelColumn(column=column, chars=64) for column in columns)
        tables = Tables(result="result", labels=labels, has_bytes=has_bytes)
        found = list(rows_of(tables, LABELLED, [contribution("cart", "ERROR")]))
        assert found == [(PARTITION, (MINUTE, *key), sums)]


def test_values_for_other_labels_make_no_row() -> None:
    """Otherwise a value could get into another label's column."""
    for labels in (("cart",), ("cart", "ERROR", "web-1")):
        with pytest.raises(ValueError, match="for 2 labels"):
            list(rows_of(Tables(result="result"), LABELLED, [contribution(*labels)]))
