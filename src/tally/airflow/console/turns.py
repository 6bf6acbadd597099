"""How many requests the console answers at a time: Airflow's own API shares the process."""

from collections.abc import Callable
from typing import Final

from anyio import CapacityLimiter, to_thread
from fastapi import Response, status

AT_A_TIME: Final = 8
"""Requests that are answered at a time, each in a thread and on a connection of its own."""
WAITING_MAX: Final = 64
"""Requests that wait for their turn; further ones are told to come again."""
AGAIN_S: Final = 10
"""Seconds after which they may, as often as a page renews itself."""


class Turns:
    """Requests in threads, a bounded number of them at a time. Belongs to one event loop."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(AT_A_TIME)

    async def take(self, work: Callable[[], Response]) -> Response:
        """Answer a request when it is its turn.

        Args:
            work: Makes the answer; may wait for servers.

        Returns:
            Its answer, or 503 when too many wait already.
        """
        if self._limiter.statistics().tasks_waiting >= WAITING_MAX:
            return Response(
                "Tally answers too many requests at the moment; try again soon.",
                status.HTTP_503_SERVICE_UNAVAILABLE,
                {"Retry-After": str(AGAIN_S)},
                "text/plain",
            )
        return await to_thread.run_sync(work, limiter=self._limiter)
