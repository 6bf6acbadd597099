"""The fault campaign's tools: an independent checker, and reproducible lines."""

import ast
from pathlib import Path
from unittest.mock import Mock

from tests.chaos import checker, production
from tests.chaos.production import Production
from tests.unit.sources import nodes

from tally.config.servers import KafkaSettings
from tally.kafka.client import Kafka


def test_the_checker_asks_neither_kafka_nor_the_ledger() -> None:
    """Its expectations come from the produced lines; it imports no client."""
    assert imports(checker.__file__) == {"tests.chaos.production"}
    assert imports(production.__file__) == {
        *("tally_local.demo.writer", "tally.model", "tally.config.servers")
    }
    assert Kafka.__name__ not in vars(production)


def imports(path: str) -> set[str]:
    """The modules of this project that a file takes something from."""
    found = {node.module or "" for node in nodes(Path(path), ast.ImportFrom)}
    found |= {name.name for node in nodes(Path(path), ast.Import) for name in node.names}
    return {module for module in found if module.split(".")[0] in {"tally", "tally_local", "tests"}}


def test_a_seed_gives_the_same_lines_again() -> None:
    """Another seed gives other lines; a failing campaign can be reproduced."""

    def kinds(seed: int) -> dict[int, bytes]:
        keys = {"partitions": 3, "rate": 1, "open_writer": lambda _: Mock()}
        made = Production(KafkaSettings(), "alog", seed=seed, **keys)
        for _ in range(200):
            made._write_one()
        return made.so_far().kinds

    assert kinds(7) == kinds(7)
    assert kinds(7) != kinds(8)
