"""The campaign against the commit path, for a short while."""

from collections.abc import Iterator

import pytest

from tally_local.stack.stack import Stack
from tests.campaigns import share
from tests.chaos.commit_path import Campaign, CommitPathReport
from tests.properties.setup import NewPipeline, pipelines, settings_for

pytestmark = [pytest.mark.stack]

FAULTS = share(450)
SEED = 20170730


@pytest.fixture(scope="module")
def new_pipeline(
    own_migrated: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NewPipeline]:
    settings = settings_for(own_migrated, tmp_path_factory.mktemp("commit_path"))
    with pipelines(settings, own_migrated) as new:
        yield new


@pytest.fixture(scope="module")
def report(new_pipeline: NewPipeline) -> CommitPathReport:
    return Campaign(new_pipeline, SEED, print).walk(FAULTS, None)


def test_no_fault_of_the_commit_path_changes_what_is_counted(report: CommitPathReport) -> None:
    """Every kind happens, the oracle agrees after each, and every operation ends."""
    assert report.mismatches == []
    assert report.problems == []
    assert report.faults >= FAULTS
    assert report.commits_under_fault > report.rounds / 8
    assert not [kind for kind, came in report.kinds.items() if not came]


def test_a_seed_plays_the_same_faults_again(
    report: CommitPathReport, new_pipeline: NewPipeline
) -> None:
    """Operation, statement and kind of each fault are equal, so a failure can be reproduced."""
    again = Campaign(new_pipeline, SEED, print).walk(1, None).history  # one pipeline, to its end
    assert len(again) > 10
    assert again == report.history[: len(again)]
