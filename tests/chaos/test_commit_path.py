"""The campaign against the commit path, for a short while."""

from collections.abc import Iterator

import pytest

from tally_local.stack.stack import Stack
from tests.chaos.commit_path import Campaign
from tests.properties.setup import NewPipeline, pipelines, settings_for

pytestmark = [pytest.mark.stack]

FAULTS = 400
SEED = 20170730


@pytest.fixture
def new_pipeline(
    migrated: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NewPipeline]:
    """Makes pipelines with an empty ledger on the shared MySQL."""
    settings = settings_for(migrated, tmp_path_factory.mktemp("commit_path"))
    with pipelines(settings, migrated) as new:
        yield new


def test_no_fault_of_the_commit_path_changes_what_is_counted(new_pipeline: NewPipeline) -> None:
    """Every kind happens, the oracle agrees after each, and every operation ends."""
    report = Campaign(new_pipeline, SEED, print).walk(FAULTS, None)
    assert report.mismatches == []
    assert report.faults >= FAULTS
    assert report.commits_under_fault > report.rounds / 8
    assert not [kind for kind, came in report.kinds.items() if not came]


def test_a_seed_plays_the_same_faults_again(new_pipeline: NewPipeline) -> None:
    """Operation, statement and kind of each fault are equal, so a failure can be reproduced."""
    first, second = (
        Campaign(new_pipeline, SEED, print).walk(FAULTS // 8, None).history for _ in range(2)
    )
    assert len(first) >= FAULTS // 8
    assert first == second
