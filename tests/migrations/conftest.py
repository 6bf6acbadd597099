"""Pipelines whose ledger is in a database of the test's own."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally_local.stack.stack import Stack
from tests.world import World


@pytest.fixture
def empty(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A pipeline without a topic whose ledger is an empty database."""
    name = f"own_{secrets.token_hex(5)}"
    world = World(stack=stack, config=tmp_path / "tally.toml", name=name, topic=name)
    world.configure()
    world.as_root(
        f"create database {name} character set utf8mb4",
        f"grant all on {name}.* to tally@'127.0.0.1'",
    )
    monkeypatch.setenv("TALLY_MYSQL__DATABASE", name)
    yield world
    world.as_root(f"drop database {name}")
