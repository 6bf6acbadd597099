"""How much of a random campaign a run plays: a fifth in the suite, all in ``make chaos``."""

import os
from typing import Final

VARIABLE: Final = "TALLY_TEST_CAMPAIGN"
"""Set by ``make chaos``."""


def share(whole: int) -> int:
    """How many faults, steps or batches of a campaign this run plays; at least one."""
    return whole if os.environ.get(VARIABLE) else max(1, whole // 5)
