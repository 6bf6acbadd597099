"""After any sequence of events the result is a fresh count over what the ledger says is counted.

The usual run plays the same sequences each time. A longer one plays new ones:

    TALLY_TEST_EXAMPLES=5000 TALLY_TEST_SEED=7 pytest tests/properties -s

Hypothesis prints a failing sequence as code, step by step; with the same seed and number of
examples it comes again, and ``play`` of :mod:`tests.properties.test_found` takes the operations as
they were printed. ``TALLY_TEST_STEPS`` makes sequences longer, ``TALLY_TEST_SHRINK=0``
prints the first failing one as it is.
"""

import os
import time
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.faults import SLOW, FaultKind
from tests.properties.machine import Machine
from tests.properties.pipeline import PipelineUnderTest
from tests.properties.setup import NewPipeline

pytestmark = [pytest.mark.stack]

EXAMPLES = int(os.environ.get("TALLY_TEST_EXAMPLES", "60"))
STEPS = int(os.environ.get("TALLY_TEST_STEPS", "30"))
SEED = int(os.environ.get("TALLY_TEST_SEED", "20170730"))
SHRINK = os.environ.get("TALLY_TEST_SHRINK", "1") == "1"

# A run proves little unless each of these has happened.
OFTEN = [
    "Accept: done",
    "AskRanges: done",
    "GoOn: in time",
    "GoOn: too late",
    "Kill: killed",
    "Plan: done",
    "Prune: done",
    "RunMinute: done",
    "RunReplay: done",
    "RunReplayBatch: done",
    "Stop: killed",
    "records-missing",
    "replay-refused",
    "CLOCK_MOVED",
    "COMMIT_ANSWER_LOST",
    "COMMIT_LOST",
    "PAUSED_AND_LOST",
    "RIVAL",
]
# Rare events, which must have happened in a run of some hundred sequences.
SELDOM = [
    *(kind.name for kind in FaultKind if kind not in SLOW),
    "Abandon: done",
    "Adopt: done",
    "AskAll: done",
    "Cancel: done",
    "Replan: done",
    "data-loss",
    "overtaken",
]
# So must each of these, in the shorter runs with a label or with bytes.
BASIC = ["RunMinute: done", "RunReplay: done", "Prune: done", "Stop: killed"]
MUST_HAPPEN = [*OFTEN, *(SELDOM if EXAMPLES >= 500 else [])]


def play(new: NewPipeline, examples: int) -> Counter[str]:
    """Run sequences; returns how often each event has happened."""
    outcomes: Counter[str] = Counter()
    made: list[PipelineUnderTest] = []

    @seed(SEED)
    def machine() -> Machine:
        made[:] = [new()]
        made[0].outcomes = outcomes
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
            phases=[Phase.generate, *([Phase.shrink] if SHRINK else [])],
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    seconds = time.monotonic() - begun
    came = outcomes + made[0].wire.came
    print(f"\nseed {SEED}: {examples} examples, {came['steps']} steps, {seconds:.0f} s")  # noqa: T201
    print(dict(sorted(came.items())))  # noqa: T201
    return came


@pytest.mark.timeout(0 if EXAMPLES > 100 else 1200)
def test_whatever_happens_the_result_is_a_fresh_count(new_pipeline: NewPipeline) -> None:
    """Batches, replays, retries, losses, kills, conflicts: nothing counts twice or is left out."""
    came = play(new_pipeline, EXAMPLES)
    assert not [what for what in MUST_HAPPEN if not came[what]]


@pytest.mark.timeout(0 if EXAMPLES > 100 else 1200)
def test_whatever_happens_the_result_by_labels_is_a_fresh_count(new_labelled: NewPipeline) -> None:
    """The same with a label, so that a minute has several independent rows."""
    came = play(new_labelled, max(1, EXAMPLES // 3))
    assert not [what for what in BASIC if not came[what]]


@pytest.mark.timeout(0 if EXAMPLES > 100 else 1200)
def test_whatever_happens_the_result_in_bytes_is_a_fresh_count(new_measured: NewPipeline) -> None:
    """The same with lengths, so that a row may gain lines and lose bytes."""
    came = play(new_measured, max(1, EXAMPLES // 3))
    assert not [what for what in BASIC if not came[what]]
