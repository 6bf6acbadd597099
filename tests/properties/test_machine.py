"""After any sequence of events the result is a fresh count over what the ledger says is counted.

What each sequence did to the ledger is a trace that the model of the protocol accepts.

The usual run plays the same sequences each time. A longer one plays new ones:

    TALLY_TEST_EXAMPLES=5000 TALLY_TEST_SEED=7 pytest tests/properties -s

Hypothesis prints a failing sequence as code, step by step; with the same seed and number of
examples it comes again, and ``play`` of :mod:`tests.properties.test_found` takes the operations as
they were printed.
"""

import os
import time
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.campaigns import share
from tests.properties.faults import SLOW, FaultKind
from tests.properties.machine import Machine
from tests.properties.pipeline import PipelineUnderTest
from tests.properties.setup import NewPipeline
from tests.protocol.model import HARD_CASES

pytestmark = [pytest.mark.stack]

EXAMPLES = int(os.environ.get("TALLY_TEST_EXAMPLES", share(60)))
STEPS = 30
SEED = int(os.environ.get("TALLY_TEST_SEED", "20170730"))

# A run proves little unless each of these has happened; the longer it is, the more must have.
MUST_HAPPEN = {
    1: "Plan: done, RunMinute: done, Prune: done",
    12: "Accept: done, AskRanges: done, Kill: killed, RunReplay: done, RunReplayBatch: done, "
    "Stop: killed, replay-refused, CLOCK_MOVED, PAUSED_AND_LOST, RIVAL",
    60: "COMMIT_ANSWER_LOST, COMMIT_LOST, GoOn: in time, GoOn: too late, records-missing",
    500: "Abandon: done, Adopt: done, AskAll: done, Cancel: done, Replan: done, data-loss, "
    "overtaken, " + ", ".join(kind.name for kind in FaultKind if kind not in SLOW),
}
"""By number of examples."""

HARD_CASES_IN = 12
"""Examples in which each of the model's hard cases must be."""


ROUNDS = 4
"""How often as many examples are played until all of that has happened: on a busy machine a process
that is paused meets others than on a quiet one."""


def play(new: NewPipeline, examples: int, seed_: int) -> Counter[str]:
    """Run sequences; returns how often each event has happened."""
    outcomes: Counter[str] = Counter()
    made: list[PipelineUnderTest] = []

    @seed(seed_)
    def machine() -> Machine:
        made[:] = [new()]
        made[0].outcomes = made[0].recorder.model.cases = outcomes
        return Machine(made[0])

    begun = time.monotonic()
    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]  # any callable that returns one will do
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    seconds = time.monotonic() - begun
    came = outcomes + made[0].wire.faults.came
    print(f"\nseed {seed_}: {examples} examples, {came['steps']} steps, {seconds:.0f} s")  # noqa: T201
    print(dict(sorted(came.items())))  # noqa: T201
    return came


@pytest.mark.timeout(0 if EXAMPLES > 20 else 1200)
@pytest.mark.parametrize(
    ("counting", "part"),
    [({}, 1), ({"by_level": True}, 3), ({"in_bytes": True}, 3)],
    ids=["lines", "by-level", "in-bytes"],
    scope="module",
)
def test_whatever_happens_the_result_is_a_fresh_count(new_pipeline: NewPipeline, part: int) -> None:
    """Batches, replays, retries, losses, kills, conflicts: nothing counts twice or is left out.

    With a label a minute has several independent rows; with lengths a row may gain lines and lose
    bytes.
    """
    examples = max(1, EXAMPLES // part)
    due = [
        what
        for least, some in MUST_HAPPEN.items()
        if examples >= least
        for what in some.split(", ")
    ]
    due += HARD_CASES if examples >= HARD_CASES_IN else ()
    came: Counter[str] = Counter()
    for round_ in range(ROUNDS):
        came += play(new_pipeline, examples, SEED + round_)
        if all(came[what] for what in due):
            break
    assert not [what for what in due if not came[what]]
