"""An action before a chosen statement of a transaction."""

import re
from collections.abc import Callable
from threading import Semaphore


def at_statement(pattern: str, do: Callable[[], None], *, times: int = 1) -> Callable[[str], None]:
    """A listener for :class:`tally.mysql.transactions.Database` that acts before a statement.

    Args:
        pattern: A regular expression that is searched in the statement's text, without parameters;
            a statement with many rows counts even if there are none.
        do: Called before the statement is sent, in the thread that sends it; an exception ends the
            transaction.
        times: How many matching statements it acts on, from the first one, in all threads
            together.
    """
    left = Semaphore(times)

    def listen(statement: str) -> None:
        if re.search(pattern, statement) and left.acquire(blocking=False):
            do()

    return listen
