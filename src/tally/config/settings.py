"""The whole configuration.

A pipeline whose keys are wrong is disabled by itself: the others are there, and a caller that asks
for it gets its mistakes.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, get_args

import pydantic
from pydantic import BaseModel, PrivateAttr, SecretStr, ValidationError

from tally.config import servers
from tally.config.checks import Taken, mistaken_names, mistakes
from tally.config.pipeline import Pipeline
from tally.errors import ConfigError, UnknownPipelineError
from tally.formatting import close_to

_MESSAGES: Final[Mapping[str, str]] = {
    "bool": "must be true or false",
    "dict": "must be a table",
    "float": "must be a number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int": "must be a whole number",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list": "must be a list",
    "literal_error": "must be {expected}",
    "model": "must be a table",
    "string_too_short": "must not be empty",
    "string_type": "must be a text",
    "too_short": "must not be empty",
}
"""By type of error, or its beginning; in place of Pydantic's sentences, for programmers."""

_IN_JSON: Final[Mapping[str, str]] = {
    "list_type": """'["a", "b"]'""",
    "dict_type": """'{"key": "value"}'""",
    "model_type": """'{"key": "value"}'""",
}

CORRECT_THEM: Final = "correct the keys named (docs/configuration.md lists them all)"
"""The next step after any complaint."""


class NoJson(str):
    """The text of an environment variable that is to be JSON, and is not."""

    __slots__ = ()


class InvalidSettingsError(Exception):
    """Keys outside of the pipelines are wrong; a sentence per mistake, pipelines' included."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences


class Settings(servers.Section):
    """The whole configuration."""

    kafka: servers.KafkaSettings = servers.KafkaSettings()
    mysql: servers.MySQLSettings = servers.MySQLSettings()
    results: servers.ResultsSettings | None = None
    """Where lines are kept; in the ledger's database when the section is not there."""
    spark: servers.SparkSettings = servers.SparkSettings()
    console: servers.ConsoleSettings = servers.ConsoleSettings()
    """What the pages in Airflow need besides."""
    pipelines: dict[str, Pipeline] = {}
    """The pipelines, by name."""

    _disabled: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _each_pipeline_by_itself(
        cls, values: dict[str, Any], handler: pydantic.ModelWrapValidatorHandler["Settings"]
    ) -> "Settings":
        given = values.get("pipelines", {})
        pipelines = given if isinstance(given, Mapping) else {}
        known: dict[str, tuple[Pipeline, set[str]]] = {}
        sentences: dict[str, list[str]] = {name: [] for name in pipelines}
        for name, keys in pipelines.items():
            try:
                known[name] = Pipeline.named(name, keys), set()
            except ValidationError as error:
                sentences[name] = complaints(error, Pipeline, f"pipelines.{name}")
                known |= _without_wrong_keys(name, keys, error)
        valid = {name: pipeline for name, (pipeline, wrong) in known.items() if not wrong}
        sections: list[str] = []
        settings = None
        try:
            settings = handler({**values, "pipelines": valid if pipelines else given})
        except ValidationError as error:
            sections = complaints(error, cls)
        taken: dict[str, Taken] = {}
        known_servers = (settings.mysql, settings.kafka) if settings else None
        for name, (pipeline, wrong) in known.items():
            sentences[name] += [] if wrong else mistaken_names(pipeline, valid, taken)
            sentences[name] += mistakes(pipeline, known_servers, wrong)
            if sentences[name]:
                valid.pop(name, None)
            else:
                taken[name] = Taken.by(pipeline)
        if settings is None:
            raise InvalidSettingsError([*sections, *chain.from_iterable(sentences.values())])
        disabled = {name: tuple(of) for name, of in sentences.items() if of}
        settings._disabled = disabled  # noqa: SLF001 - its own
        for name in disabled:
            settings.pipelines.pop(name, None)
        return settings

    @property
    def disabled(self) -> Mapping[str, tuple[str, ...]]:
        """Pipelines that are wrong, by name: a sentence per mistake."""
        return self._disabled

    @property
    def names(self) -> list[str]:
        """All configured pipelines, sorted; the wrong ones too."""
        return sorted({*self.pipelines, *self._disabled})

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name.

        Raises:
            UnknownPipelineError: No pipeline of that name is configured.
            ConfigError: It is, but wrong; each mistake is named.
        """
        if name in self._disabled:
            raise ConfigError(
                in_lines(f"pipeline {name} is not valid", self._disabled[name]),
                next_step=CORRECT_THEM,
            )
        if name not in self.pipelines:
            raise UnknownPipelineError(
                f"no pipeline {name!r} is configured; there are: {', '.join(self.names)}"
                f"{close_to(name, self.names)}",
                next_step="name one of these, or add it to tally.toml",
            )
        return self.pipelines[name]


def _without_wrong_keys(
    name: str, keys: object, error: ValidationError
) -> dict[str, tuple[Pipeline, set[str]]]:
    """A pipeline without its wrong keys, and these; empty when it is not known which they are."""
    wrong = {str(item["loc"][0]) for item in error.errors() if item["loc"]}
    if not isinstance(keys, Mapping) or not wrong:
        return {}
    rest = {key: value for key, value in keys.items() if key not in wrong}
    with suppress(ValidationError):  # keys that are wrong together
        return {name: (Pipeline.named(name, {"topics": ["unknown"], **rest}), wrong)}
    return {}


SECTIONS: Final = tuple(name for name in Settings.model_fields if name != "pipelines")
"""The sections besides the pipelines, in the order of docs/configuration.md."""
OF_DRIVERS: Final = tuple(name for name in SECTIONS if name != "console")
"""Those that a Spark driver needs."""


def complaints(error: ValidationError, model: type[BaseModel], prefix: str = "") -> list[str]:
    """A sentence per wrong key, each once: the key, the value and what is allowed.

    A value is left out where the model has a secret, whatever the key's name: a password may have
    been written under the wrong key.

    Args:
        error: The error of the validation.
        model: The validated model, which says which values are secret.
        prefix: Where the model stands in the file; empty for all of it.
    """
    return list(dict.fromkeys(_complaint(item, model, prefix) for item in error.errors()))


def in_lines(what: str, sentences: Sequence[str]) -> str:
    """What is not valid and why: on one line, or each of several reasons on a line of its own."""
    if len(sentences) == 1:
        return f"{what}: {sentences[0]}"
    reasons = ";\n  ".join(sentences)
    return f"{what}:\n  {reasons}"


def _complaint(item: Any, model: type[BaseModel], prefix: str) -> str:
    # Pydantic puts names of union members into the location; the user knows only the file's keys.
    parts = [str(part) for part in item["loc"] if "[" not in str(part) and part != "datetime"]
    path = [*prefix.split("."), *parts] if prefix else parts
    key = ".".join(path) or "the whole file"
    table, name = _table_at(model, item["loc"])
    kind, value = item["type"], item["input"]
    if kind == "missing":
        return f"{key}: is required"
    if kind == "extra_forbidden":
        return f"{key}: is no known key{close_to(name, table.model_fields)}"
    own = _MESSAGES.get(kind) or _MESSAGES.get(kind.partition("_")[0], "")
    message = own.format(**item.get("ctx", {})) or item["msg"].removeprefix("Value error, ")
    if isinstance(value, NoJson) and kind in _IN_JSON:
        message += f", in a variable as JSON: {_IN_JSON[kind]}"
    fields = [table.model_fields[name]] if name else table.model_fields.values()
    is_secret = any(SecretStr in (f.annotation, *get_args(f.annotation)) for f in fields)
    shown = "" if isinstance(value, dict | BaseModel) or is_secret else f" = {value!r}"
    return f"{key}{shown}: {message}"


def _table_at(model: type[BaseModel], location: Sequence[int | str]) -> tuple[type[BaseModel], str]:
    """The innermost table of a location, and the key in it; '' for the table itself."""
    for part in location:
        tables = models_of(model)
        if part not in tables:
            return model, str(part)
        model = tables[str(part)]
    return model, ""


def models_of(model: type[BaseModel]) -> Mapping[str, type[BaseModel]]:
    """The tables in a table, by their keys: also one that may be left out, or of which are many."""
    return {
        key: kind
        for key, field in model.model_fields.items()
        for kind in (field.annotation, *get_args(field.annotation))
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    }
