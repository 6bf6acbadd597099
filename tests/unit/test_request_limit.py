"""The console answers a bounded number of requests at a time."""

import threading

import anyio
from fastapi import Response

from tally.airflow.console.request_limit import RequestLimit

AT_A_TIME = 3
QUEUED_MAX = 20


def test_a_flood_of_requests_neither_takes_all_threads_nor_waits_for_ever() -> None:
    """So many are answered at a time, so many wait, and the next one is told to come again."""
    free, lock = threading.Event(), threading.Lock()
    now, most, codes = [0], [0], list[int]()

    def work() -> Response:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        assert free.wait(60)
        with lock:
            now[0] -= 1
        return Response("an answer")

    async def flood() -> None:
        limit = RequestLimit(at_a_time=AT_A_TIME, queued_max=QUEUED_MAX)

        async def ask() -> None:
            codes.append((await limit.run(work)).status_code)

        async with anyio.create_task_group() as group:
            for _ in range(AT_A_TIME + QUEUED_MAX):
                group.start_soon(ask)
            while limit.queued < QUEUED_MAX or now[0] < AT_A_TIME:
                await anyio.sleep(0.01)
            answer = await limit.run(work)
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            free.set()

    anyio.run(flood)
    assert codes == [200] * (AT_A_TIME + QUEUED_MAX)
    assert most == [AT_A_TIME]
