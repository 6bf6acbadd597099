"""The effective configuration: each key with its value and where the value comes from."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from tally.config import loading, variables
from tally.config.pipeline import Pipeline
from tally.config.settings import SECTIONS, Settings
from tally.errors import AccessDeniedError, TallyError
from tally.formatting import inline_toml

HIDDEN: Final = "(hidden)"
_SECRET: Final = re.compile(
    r"jaas|passw|secret|token|credential|(?:api|access|account|private|shared|sas).?key",
    re.IGNORECASE,
)
_PARAMETERS: Final = re.compile(r"(sc://[^/]*/;).*")
DEFAULT: Final = "default"

_Path = tuple[str, ...]
_TOKEN: Final[_Path] = ("spark", "connect_token")
_MASTER: Final[_Path] = ("spark", "master")


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingView:
    """One key of the configuration."""

    key: str
    """Its path, ``mysql.port``."""
    value: str | None
    """Its value as TOML writes it; ``(hidden)`` for a secret that is set, null when not set."""
    source: str
    """The environment variable or the file that it comes from, or ``default``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigView:
    """The effective configuration."""

    files: tuple[str, ...]
    """The files that were read, the one that overrides the others last."""
    settings: tuple[SettingView, ...]
    """Every key, in the order of docs/configuration.md."""
    disabled: Mapping[str, tuple[str, ...]]
    """What is wrong with each pipeline that is disabled, by its name."""


def effective(settings: Settings, config: Path, pipelines: Sequence[str]) -> ConfigView:
    """The configuration as it applies to a command; in Airflow its connections override it.

    Args:
        settings: The configuration.
        config: Its file.
        pipelines: The pipelines to show.
    """
    known = loading.sources(config)
    return ConfigView(
        files=tuple(map(str, loading.existing_files(config))),
        settings=tuple(
            SettingView(key=".".join(path), value=_shown(value), source=_source(path, value, known))
            for path, value in _leaves(settings, pipelines)
        ),
        disabled={n: wrong for n, wrong in settings.disabled.items() if n in pipelines},
    )


def name_sources(settings: Settings, config: Path, error: TallyError) -> None:
    """Add to the next step of a refused login, once, where user and password come from.

    Args:
        settings: The configuration.
        config: Its file.
        error: Of a server.
    """
    if isinstance(error, AccessDeniedError) and error.credentials:
        known, found = loading.sources(config), []
        for key in error.credentials:
            section, name = key.split(".")
            value = getattr(getattr(settings, section), name)
            found.append(f"{key} comes from {_source((section, name), value, known)}")
        if (origins := f"; {', '.join(found)}") not in error.next_step:
            error.next_step += origins


def _leaves(settings: Settings, pipelines: Sequence[str]) -> Iterator[tuple[_Path, Any]]:
    for name in SECTIONS:
        section = getattr(settings, name)
        if section is None:
            continue
        for key in type(section).model_fields:
            yield (name, key), getattr(section, key)
    for name in pipelines:
        if name in settings.pipelines:
            for key in Pipeline.model_fields:
                yield ("pipelines", name, key), getattr(settings.pipelines[name], key)


def _source(path: _Path, value: Any, known: Mapping[str, Any]) -> str:
    """The first source that has the key, or a part of its table."""
    for name, values in known.items():
        if variables.value_at(values, path) is not variables.NOT_THERE:
            return variables.variable_of(path) if name == loading.ENVIRONMENT else name
    if path == _TOKEN and value.get_secret_value():  # it may stand in the address
        return _source(_MASTER, None, known)
    return DEFAULT


def _shown(value: Any) -> str | None:
    if isinstance(value, SecretStr):
        return HIDDEN if value.get_secret_value() else None
    return None if value is None else inline_toml(_without_secrets(value))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if _SECRET.search(key) else _without_secrets(of)
            for key, of in value.items()
        }
    if isinstance(value, str):
        return _PARAMETERS.sub(rf"\g<1>{HIDDEN}", value)  # any of them may be a secret
    return value
