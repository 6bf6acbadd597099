"""Something that happens when a transaction comes to a statement."""

import re
from collections.abc import Callable
from threading import Semaphore


def at_statement(pattern: str, do: Callable[[], None], *, times: int = 1) -> Callable[[str], None]:
    """A listener for :class:`tally.mysql.transactions.Database` that acts before a statement.

    Args:
        pattern: A regular expression that is found in the statement; statements are compared as the
            code has them, without their parameters, whether they have rows to send or not.
        do: Called before the statement is sent, in the thread that sends it; what it raises ends
            the transaction.
        times: At how many such statements, from the first one on; the others are left alone,
            whichever thread sends them.
    """
    left = Semaphore(times)

    def listen(statement: str) -> None:
        if re.search(pattern, statement) and left.acquire(blocking=False):
            do()

    return listen
