"""Environment variables ``TALLY_…``: the values that they set, and errors about unknown ones."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from tally.config.names import PREFIX
from tally.config.settings import NoJson, Settings, models_of
from tally.formatting import closest
from tally.logs import FORMAT_VARIABLE

CONFIG_VARIABLE: Final = "TALLY_CONFIG"
SECRETS_VARIABLE: Final = "TALLY_SECRETS_FILE"

OTHER_VARIABLES: Final = frozenset(
    {CONFIG_VARIABLE, SECRETS_VARIABLE, FORMAT_VARIABLE, "TALLY_STACK_TOKEN", "TALLY_AIRFLOW_PORT"}
)
"""Read by Tally, but not settings: the configuration's path, the log's format, and the local
stacks' own."""

OF_TESTS: Final = f"{PREFIX}TEST_"
"""Variables of the test suite start with this."""

NOT_THERE: Final = object()


class Environment(EnvSettingsSource):
    """The environment variables as a source of settings.

    The value of a list or a table is JSON. Where it is not, it stays text: the validation then
    refuses that key alone, and names it.
    """

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """The value that a text of JSON means; the text itself where it is not JSON."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return NoJson(value)


def environment() -> Mapping[str, Any]:
    """What the environment variables set, in the shape of the file."""
    model: Any = Settings  # the source reads the fields of any model
    return Environment(model, env_prefix=PREFIX, env_nested_delimiter="__")()


def value_at(values: Any, path: Sequence[str]) -> Any:
    """The value at a path through tables and lists, ``NOT_THERE`` where there is none."""
    for key in path:
        if isinstance(values, Mapping) and key in values:
            values = values[key]
        elif isinstance(values, list) and key.isdecimal() and int(key) < len(values):
            values = values[int(key)]
        else:
            return NOT_THERE
    return values


def variable_of(path: Sequence[str]) -> str:
    """The variable that sets a key: its own, that of a table it is in, or of a key below it."""
    own = PREFIX + "__".join(path).upper()
    tables = [PREFIX + "__".join(path[:length]).upper() for length in range(len(path), 0, -1)]
    names = sorted(os.environ)
    below = [name for name in names if name.upper().startswith(f"{own}__")]
    found = [name for table in tables for name in names if name.upper() == table]
    return next(iter([*found, *below]), own)


def mistaken_variables(names: Iterable[str]) -> Iterator[str]:
    """A sentence for each ``TALLY_`` variable that means nothing: it would have no effect.

    Below a section that exists, loading the configuration refuses an unknown key.

    Args:
        names: Of all variables.
    """
    sections = models_of(Settings)
    known = [f"{PREFIX}{s}__{key}".upper() for s, of in sections.items() for key in of.model_fields]
    for name in sorted(names):
        upper = name.upper()
        if not upper.startswith(PREFIX) or upper.startswith(OF_TESTS) or upper in OTHER_VARIABLES:
            continue
        section, separator, _ = name[len(PREFIX) :].lower().partition("__")
        if section not in sections or not separator:
            meant = closest(upper, [*sorted(OTHER_VARIABLES), *known])
            hint = f"did you mean {meant}?" if meant else "unset it"
            yield f"the environment variable {name} is no setting: {hint}"
