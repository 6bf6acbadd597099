"""The configuration: one file, ``tally.toml``, validated once.

The first of these sources that has a value wins:

1. what the caller passes (Airflow connections, see :mod:`tally.airflow.connections`),
2. the environment: ``TALLY_`` and the key's path, its parts joined by two underscores
   (``TALLY_MYSQL__PASSWORD``, ``TALLY_PIPELINES__ERROR_LOG__LEVELS='["ERROR"]'``),
3. the file ``TALLY_SECRETS_FILE`` names: TOML of the same shape, readable by its owner alone,
4. ``.tally/stack.toml`` beside the configuration: the local stack's addresses and passwords,
5. ``tally.toml``, or the file ``TALLY_CONFIG`` names,
6. the defaults below.
"""

import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tally.config import variables
from tally.config.settings import CORRECT_THEM, InvalidSettingsError, Settings, in_lines
from tally.errors import ConfigError

CALLER: Final = "caller"
ENVIRONMENT: Final = "environment"
"""Sources of values that are no files."""
CONFIG_NAME = "tally.toml"
STACK_OVERLAY = Path(".tally") / "stack.toml"


def config_path() -> Path:
    """The configuration file: ``TALLY_CONFIG``, or ``tally.toml`` in the working directory."""
    return Path(os.environ.get(variables.CONFIG_VARIABLE) or CONFIG_NAME).absolute()


def load_settings(
    path: Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    needs_pipeline: bool = True,
) -> Settings:
    """Read and validate the configuration.

    Args:
        path: The file; :func:`config_path` when None.
        overrides: Values of the same shape, which override all other sources.
        needs_pipeline: Whether there must be one, right or wrong. A wrong one is an error only for
            those who ask for it: :meth:`tally.config.settings.Settings.pipeline`.

    Raises:
        ConfigError: A file is missing or not TOML, a value is not allowed, or a variable
            ``TALLY_…`` means nothing; every wrong key is named with its value (unless secret) and
            what is allowed.
    """
    config = path or config_path()
    known = {CALLER: overrides or {}, **sources(config)}
    values: Mapping[str, Any] = {}
    for source in reversed(known.values()):
        values = _merged(values, source)
    mistaken = list(variables.mistaken_variables(os.environ))
    settings, wrong = None, []
    try:
        settings = Settings.model_validate(values)
    except InvalidSettingsError as error:
        wrong = error.sentences
    else:
        if needs_pipeline and not settings.names:
            mistaken.insert(0, "pipelines: at least one is needed")
        wrong = list(chain.from_iterable(settings.disabled.values()))
    if settings is None or mistaken:
        told = dict.fromkeys(_with_source(sentence, known) for sentence in [*wrong, *mistaken])
        raise ConfigError(
            in_lines(f"{config} with its overrides is not valid", list(told)),
            next_step=CORRECT_THEM,
        )
    settings._disabled = {  # noqa: SLF001 - as Settings found them, with where they stand
        name: tuple(_with_source(sentence, known) for sentence in sentences)
        for name, sentences in settings.disabled.items()
    }
    return settings


def sources(config: Path) -> dict[str, Mapping[str, Any]]:
    """What sets values, the overriding ones first: ``environment``, then the files by their path.

    Args:
        config: The configuration.

    Raises:
        ConfigError: As :func:`load_settings`.
    """
    files = reversed(existing_files(config))
    return {
        ENVIRONMENT: variables.environment(),
        **{str(file): _parsed_file(file) for file in files},
    }


def _merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Values, overridden key by key."""
    merged = dict(values)
    for key, of in over.items():
        is_table = isinstance(of, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], of) if is_table else of
    return merged


def existing_files(base: Path) -> tuple[Path, ...]:
    """The files of a configuration, the one that overrides the others last.

    Raises:
        ConfigError: There is no such configuration, or its secrets are missing or not private.
    """
    if not base.is_file():
        raise ConfigError(
            f"there is no configuration file {base}",
            next_step=f"name another one with --config or {variables.CONFIG_VARIABLE}, or run "
            f"Tally in the directory of {CONFIG_NAME}",
        )
    files = [base]
    if (stack := base.parent / STACK_OVERLAY).is_file():
        files.append(stack)
    if secrets := os.environ.get(variables.SECRETS_VARIABLE):
        files.append(_checked_secrets(Path(secrets)))
    return tuple(files)


def _checked_secrets(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(
            f"{variables.SECRETS_VARIABLE} names {path}, which does not exist",
            next_step=f"create it or unset {variables.SECRETS_VARIABLE}",
        )
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{path} holds secrets, and users other than its owner may read it",
            next_step=f"chmod 600 '{path}'",
        )
    return path


def _parsed_file(path: Path) -> Mapping[str, Any]:
    try:
        content = path.read_bytes()
        return tomllib.loads(content.decode())
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no valid TOML: {error}", next_step="correct it") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path} is no valid TOML: {error.reason} (at line {line})",
            next_step="write it in UTF-8",
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", next_step=f"ls -l '{path}'"
        ) from None


def _with_source(sentence: str, known: Mapping[str, Mapping[str, Any]]) -> str:
    """A sentence about a key, with the variable or the line that sets it.

    A table has none, nor has what is in a list a line.

    Args:
        sentence: It begins with the key, by its path.
        known: The sources, the one that overrides the others first.
    """
    key = sentence.partition(" ")[0].rstrip(":")
    path = key.split(".")
    for name, values in known.items():
        value = variables.value_at(values, path)
        if value is variables.NOT_THERE or isinstance(value, Mapping):
            continue
        if name == ENVIRONMENT:
            return f"{key} (from {variables.variable_of(path)}){sentence.removeprefix(key)}"
        if name == CALLER or path[-1].isdecimal():
            break
        lines = Path(name).read_text(encoding="utf-8").split("\n")
        where = "" if name == list(known)[-1] else f"{Path(name).name}, "
        line = _line_of(path, lines)
        return f"{sentence} ({where}line {line})" if line else sentence
    return sentence


def _line_of(path: Sequence[str], lines: Sequence[str]) -> int | None:
    """The line on which a key is set; None if it is written otherwise, with escapes."""
    for before, line in enumerate(lines):
        if path[-1] in line:
            # A statement may go on for some lines: it is read as far as it is whole.
            upto = (_parsed(lines[:end]) for end in range(before + 1, len(lines) + 1))
            whole = next(document for document in upto if document is not None)
            if variables.value_at(whole, path) is not variables.NOT_THERE:
                return before + 1
    return None


def _parsed(lines: Sequence[str]) -> Mapping[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None
