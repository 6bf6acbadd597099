"""The end of a replay: done or cancelled, decided by its batches."""

from typing import Final

from tally.mysql.transactions import Transaction

_REPROCESSED: Final = """
    select 1 from batch d join segment c using (batch_id)
    where d.replay_id = %s and d.state = 'committed'
    and c.incarnation_id = s.incarnation_id and c.partition_id = s.partition_id
"""


def settle_replay(tx: Transaction, replay_id: int) -> None:
    """End the replay when none of its batches is planned any more.

    It is done if committed batches cover all of its ranges. It is cancelled if one of its abandoned
    ranges begins or ends outside of every committed batch.

    Its row is locked first: of two last batches that commit at once, the second sees the first.
    """
    tx.row("select state from replay where replay_id = %s for update", (replay_id,))
    tx.execute(
        "update replay set ended_at = %s, state = if("
        "   exists (select 1 from batch b join segment s using (batch_id)"
        "     where b.replay_id = %s and b.state = 'abandoned' and not ("
        f"       exists ({_REPROCESSED}"
        "         and c.from_offset <= s.from_offset and s.from_offset < c.until_offset)"
        f"       and exists ({_REPROCESSED}"
        "         and c.from_offset < s.until_offset and s.until_offset <= c.until_offset))),"
        "   'cancelled', 'done')"
        " where replay_id = %s and state = 'open'"
        " and not exists (select 1 from batch where replay_id = %s and state = 'planned')",
        (tx.now(), *(replay_id,) * 5),
    )
