"""By which rules batches were counted, told by their fingerprints. Changes nothing."""

from dataclasses import dataclass
from typing import Final

from tally.mysql.transactions import Transaction

# Recent enough to describe the pipeline as it is now, and many enough for a quiet pipeline.
RECENT_BATCHES: Final = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Understood:
    """How much of what was read could be understood."""

    records: int = 0
    """Records read."""
    malformed: int = 0
    """Records among them that could not be understood."""

    @property
    def ratio(self) -> float:
        """The share that could not be understood, 0 to 1; 0 of nothing."""
        return self.malformed / self.records if self.records else 0.0


NOTHING_READ: Final = Understood()


def recently_understood(tx: Transaction, pipeline: str, fingerprint: str) -> Understood:
    """What the latest twenty committed batches have read, as far as they follow a rule.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        fingerprint: Of the rule (:func:`tally.aggregates.fingerprint.fingerprint`).
    """
    row = tx.row(
        "select coalesce(sum(s.records), 0) as records, coalesce(sum(s.malformed), 0) as malformed"
        " from (select batch_id from batch where pipeline = %s and state = 'committed'"
        f"   and kind <> 'fold' order by batch_id desc limit {RECENT_BATCHES}) as recent"
        " join batch b using (batch_id) join segment s using (batch_id)"
        " where b.format_fingerprint = %s",
        (pipeline, fingerprint),
    )
    return (
        Understood(records=int(row["records"]), malformed=int(row["malformed"]))
        if row
        else (Understood())
    )


def records_in_sound_batches(
    tx: Transaction, pipeline: str, fingerprint: str, max_ratio: float
) -> int:
    """Records of all committed batches under a rule of which no more than a share was malformed.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        fingerprint: Of the rule.
        max_ratio: The share, 0 to 1.
    """
    row = tx.row(
        "select coalesce(sum(records), 0) as records from ("
        "  select sum(s.records) as records, sum(s.malformed) as malformed"
        "  from batch b join segment s using (batch_id) where b.pipeline = %s"
        "  and b.state = 'committed' and b.format_fingerprint = %s group by b.batch_id) as by_batch"
        " where malformed <= records * %s",
        (pipeline, fingerprint, max_ratio),
    )
    return int(row["records"]) if row else 0


def replaces_only(tx: Transaction, batch_id: int, fingerprint: str) -> bool:
    """Whether a batch is to replace something, and all of it was counted under a rule."""
    row = tx.row(
        "select count(*) as segments, coalesce(sum(b.format_fingerprint = %s), 0) as same"
        " from segment s join replacement r using (segment_id)"
        " join segment o on o.segment_id = r.replaced_id join batch b on b.batch_id = o.batch_id"
        " where s.batch_id = %s",
        (fingerprint, batch_id),
    )
    return row is not None and 0 < row["segments"] == row["same"]
