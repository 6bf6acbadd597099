"""One pipeline on the shared MySQL, emptied for each example."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.config.settings import Settings
from tally_local.stack.stack import Stack
from tests.properties.setup import NewPipeline, pipelines, settings_for


@pytest.fixture(scope="session")
def empty_settings(migrated: Stack, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The configuration of the pipeline, with its result table."""
    return settings_for(migrated, tmp_path_factory.mktemp("properties"))


@pytest.fixture
def new_labelled(migrated: Stack, tmp_path: Path) -> Iterator[NewPipeline]:
    """As ``new_pipeline``, with counts by level."""
    with pipelines(settings_for(migrated, tmp_path, by_level=True), migrated) as new:
        yield new


@pytest.fixture
def new_measured(migrated: Stack, tmp_path: Path) -> Iterator[NewPipeline]:
    """As ``new_pipeline``, with the lengths of the lines beside their number."""
    with pipelines(settings_for(migrated, tmp_path, in_bytes=True), migrated) as new:
        yield new


@pytest.fixture
def new_pipeline(empty_settings: Settings, migrated: Stack) -> Iterator[NewPipeline]:
    """See :func:`pipelines`."""
    with pipelines(empty_settings, migrated) as new:
        yield new
