"""Contradictions in the ledger: states of batches and segments that exclude each other.

Constraints prevent most of them. These checks find the rest, and all of them in a ledger whose
constraints were dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tally.mysql.transactions import Row, Transaction

# A superseded segment's batch stays committed: it was counted, and another has replaced it since.
_STATES = """
    select b.batch_id, b.state as batch_state, s.segment_id, s.state, i.topic, s.partition_id,
           s.from_offset, s.until_offset
    from batch b join segment s using (batch_id) join topic_incarnation i using (incarnation_id)
    where b.pipeline = %s and not (
        (b.state = 'planned' and s.state = 'planned')
        or (b.state = 'committed' and s.state in ('live', 'superseded', 'folded'))
        or (b.state = 'abandoned' and s.state = 'abandoned'))
    order by s.segment_id
"""

# Foreign keys prevent both, unless their checks were off.
_ALONE = """
    select s.segment_id, s.batch_id, s.state, i.topic, s.partition_id, s.from_offset,
           s.until_offset, b.batch_id is null as lacks_batch
    from segment s join topic_incarnation i using (incarnation_id)
    left join batch b on b.batch_id = s.batch_id
    left join partition_offset o
        on o.incarnation_id = s.incarnation_id and o.partition_id = s.partition_id
    where i.pipeline = %s and (b.batch_id is null or o.incarnation_id is null)
    order by s.segment_id
"""

_DUPLICATE_GENERATIONS = """
    select topic, cluster_id, topic_id, count(*) as incarnations
    from topic_incarnation where pipeline = %s
    group by topic, cluster_id, topic_id having count(*) > 1
    order by topic, cluster_id, topic_id
"""

_LIVE_TWICE = """
    select a.segment_id, b.segment_id as other_id, a.partition_id,
           greatest(a.from_offset, b.from_offset) as from_offset,
           least(a.until_offset, b.until_offset) as until_offset
    from topic_incarnation i join segment a using (incarnation_id)
    join topic_incarnation j on j.pipeline = i.pipeline and j.topic = i.topic
        and j.cluster_id = i.cluster_id and j.topic_id = i.topic_id
        and j.incarnation_id > i.incarnation_id
    join segment b on b.incarnation_id = j.incarnation_id and b.partition_id = a.partition_id
        and a.from_offset < b.until_offset and b.from_offset < a.until_offset
    where i.pipeline = %s and i.topic = %s and i.cluster_id = %s and i.topic_id = %s
        and a.state in ('live', 'folded') and b.state in ('live', 'folded')
    order by a.partition_id, a.from_offset
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contradiction:
    """Two statements of the ledger that cannot both be true."""

    where: str
    """The segment or the topic."""
    detail: str
    """Both statements, in one sentence."""


def wrong_states(tx: Transaction, pipeline: str) -> Iterator[Contradiction]:
    """Segments with a state that their batch does not allow, or without a batch or a position.

    A planned batch has planned segments, an abandoned one abandoned segments, and a committed one
    live, superseded or folded ones.
    """
    for row in tx.stream(_STATES, (pipeline,)):
        yield Contradiction(
            where=_segment(row),
            detail=f"it is {row['state']}, its batch {row['batch_id']} is {row['batch_state']}",
        )
    for row in tx.stream(_ALONE, (pipeline,)):
        lacks = f"row of its batch {row['batch_id']}" if row["lacks_batch"] else "committed offset"
        yield Contradiction(
            where=_segment(row), detail=f"it is {row['state']}, and the {lacks} is gone"
        )


def _segment(row: Row) -> str:
    span = f"{row['topic']}/{row['partition_id']} [{row['from_offset']}, {row['until_offset']})"
    return f"segment {row['segment_id']} of {span}"


def duplicate_generations(tx: Transaction, pipeline: str) -> Iterator[Contradiction]:
    """Topic generations that the ledger has twice, and offsets that therefore count twice."""
    for generation in tx.rows(_DUPLICATE_GENERATIONS, (pipeline,)):
        topic, topic_id = generation["topic"], generation["topic_id"]
        yield Contradiction(
            where=f"{topic} (topic id {topic_id}, cluster {generation['cluster_id']})",
            detail=f"the ledger has it {generation['incarnations']} times, as if re-created",
        )
        yield from _live_twice(tx, pipeline, generation)


def _live_twice(tx: Transaction, pipeline: str, generation: Row) -> Iterator[Contradiction]:
    topic, topic_id = generation["topic"], generation["topic_id"]
    key = (pipeline, topic, generation["cluster_id"], topic_id)
    for row in tx.stream(_LIVE_TWICE, key):
        yield Contradiction(
            where=f"{topic}/{row['partition_id']} (topic id {topic_id})",
            detail=f"[{row['from_offset']}, {row['until_offset']}) is live in segment "
            f"{row['segment_id']} and in segment {row['other_id']}",
        )
