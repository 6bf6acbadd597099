"""Environment variables ``TALLY_…``: which there are, and what is said of any other."""

from collections.abc import Iterable, Iterator
from typing import Final, get_args

from pydantic import BaseModel

from tally.config.names import PREFIX
from tally.config.settings import Settings
from tally.formatting import closest

CONFIG_VARIABLE: Final = "TALLY_CONFIG"
SECRETS_VARIABLE: Final = "TALLY_SECRETS_FILE"

OTHER_VARIABLES: Final = frozenset(
    {CONFIG_VARIABLE, SECRETS_VARIABLE, "TALLY_STACK_TOKEN", "TALLY_AIRFLOW_PORT"}
)
"""Read by Tally, but not settings: the configuration's path, and the local stacks' own."""

OF_TESTS: Final = f"{PREFIX}TEST_"
"""Variables of the test suite start with this."""


def mistaken_variables(names: Iterable[str]) -> Iterator[str]:
    """A sentence for each ``TALLY_`` variable that means nothing: it would have no effect."""
    for name in unknown_variables(names):
        meant = closest(name.upper(), _known_variables())
        hint = f"did you mean {meant}?" if meant else "unset it"
        yield f"the environment variable {name} is no setting: {hint}"


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


def _known_variables() -> list[str]:
    known = sorted(OTHER_VARIABLES)
    for section, field in Settings.model_fields.items():
        for model in (field.annotation, *get_args(field.annotation)):
            if isinstance(model, type) and issubclass(model, BaseModel):
                known += [f"{PREFIX}{section.upper()}__{k.upper()}" for k in model.model_fields]
    return known
