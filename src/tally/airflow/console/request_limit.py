"""How many requests the console answers at a time: Airflow's own API shares the process."""

from collections.abc import Callable
from typing import Final

from anyio import CapacityLimiter, to_thread
from fastapi import Response, status

RETRY_AFTER_S: Final = 10
"""Seconds after which a refused request may come again, as often as a page renews itself."""


class RequestLimit:
    """Requests in threads, a bounded number of them at a time. Belongs to one event loop.

    Args:
        at_a_time: Requests that are answered at a time, each in a thread of its own.
        queued_max: Requests that wait for a thread; further ones are refused.
    """

    def __init__(self, *, at_a_time: int, queued_max: int) -> None:
        self._limiter = CapacityLimiter(at_a_time)
        self._queued_max = queued_max

    @property
    def queued(self) -> int:
        """Requests that wait for a thread now."""
        return self._limiter.statistics().tasks_waiting

    async def run(self, work: Callable[[], Response]) -> Response:
        """Answer a request in a thread.

        Args:
            work: Makes the answer; may wait for servers.

        Returns:
            Its answer, or 503 when too many wait already.
        """
        if self.queued >= self._queued_max:
            return Response(
                "Tally answers too many requests at the moment; try again soon.",
                status.HTTP_503_SERVICE_UNAVAILABLE,
                {"Retry-After": str(RETRY_AFTER_S)},
                "text/plain",
            )
        return await to_thread.run_sync(work, limiter=self._limiter)
