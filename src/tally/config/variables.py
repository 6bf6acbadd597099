"""Environment variables ``TALLY_…``: which there are, and what is said of any other."""

from collections.abc import Iterable, Iterator
from typing import Final

from pydantic import BaseModel

from tally.config.complaints import closest
from tally.config.settings import Settings
from tally.errors import ConfigError

PREFIX: Final = "TALLY_"
CONFIG_VARIABLE: Final = "TALLY_CONFIG"
SECRETS_VARIABLE: Final = "TALLY_SECRETS_FILE"

OTHER_VARIABLES: Final = frozenset(
    {CONFIG_VARIABLE, SECRETS_VARIABLE, "TALLY_STACK_TOKEN", "TALLY_AIRFLOW_PORT"}
)
"""Read by Tally, but not settings: the configuration's path, and the local stacks' own."""

OF_TESTS: Final = f"{PREFIX}TEST_"
"""Variables of the test suite start with this."""


def check_variables(names: Iterable[str]) -> None:
    """Raise if a ``TALLY_`` variable means nothing: a misspelt one would have no effect.

    Raises:
        ConfigError: With each such variable and the one that is probably meant.
    """
    if unknown := list(unknown_variables(names)):
        raise ConfigError(
            f"environment: no setting has the name {', '.join(unknown)}",
            next_step="; ".join(_advice(name) for name in unknown),
        )


def unknown_variables(names: Iterable[str]) -> Iterator[str]:
    """The ``TALLY_`` variables that no setting reads, in order.

    Below a section that exists, loading the configuration refuses an unknown key.
    """
    for name in sorted(names):
        upper = name.upper()
        if not upper.startswith(PREFIX) or upper.startswith(OF_TESTS) or upper in OTHER_VARIABLES:
            continue
        section, separator, _ = name[len(PREFIX) :].lower().partition("__")
        if section not in Settings.model_fields or not separator:
            yield name


def _advice(name: str) -> str:
    meant = closest(name.upper(), _known_variables())
    return f"{name}: did you mean {meant}?" if meant else f"unset {name}"


def _known_variables() -> list[str]:
    known = sorted(OTHER_VARIABLES)
    for section, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys = field.annotation.model_fields
            known += [f"{PREFIX}{section.upper()}__{key.upper()}" for key in keys]
    return known
