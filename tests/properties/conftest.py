"""One pipeline on a MySQL of the session's own, emptied for each example."""

from collections.abc import Iterator

import pytest

from tally_local.stack.stack import Stack
from tests.properties.setup import NewPipeline, pipelines, settings_for


@pytest.fixture(scope="module")
def counting() -> dict[str, bool]:
    """Options of :func:`settings_for`; tests give others as a parameter."""
    return {}


@pytest.fixture(scope="module")
def new_pipeline(
    own_migrated: Stack, tmp_path_factory: pytest.TempPathFactory, counting: dict[str, bool]
) -> Iterator[NewPipeline]:
    settings = settings_for(own_migrated, tmp_path_factory.mktemp("pipelines"), **counting)
    with pipelines(settings, own_migrated) as new:
        yield new
