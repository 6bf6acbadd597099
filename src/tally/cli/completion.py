"""What a shell completes: pipelines, topics and batches, as far as they are found quickly."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from tally.cli.app import App
from tally.errors import TallyError

if TYPE_CHECKING:
    from tally.config.settings import Settings

BATCHES: Final = 20
"""The latest batches of each pipeline that are offered."""
PATIENCE_S: Final = 2
"""Seconds to wait for the ledger: somebody waits at a prompt."""


def pipelines(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """The configured pipelines."""
    settings = _settings(context)
    return [] if settings is None else _items(settings.names, begun)


def topics(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """The topics of all configured pipelines."""
    settings = _settings(context)
    if settings is None:
        return []
    found = {topic for pipeline in settings.pipelines.values() for topic in pipeline.topics}
    return _items(sorted(found), begun)


def topics_and_files(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """The topics, and files by the shell's own means."""
    return [*topics(context, parameter, begun), CompletionItem(begun, type="file")]


def batches(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """The latest batches, newest first, with their pipeline and state; none without the ledger."""
    from tally.reading.batches import batches as latest  # noqa: PLC0415 - --help does without

    settings = _settings(context)
    if settings is None:
        return []
    quick = {"connect_timeout_s": PATIENCE_S, "statement_timeout_s": PATIENCE_S}
    mysql = settings.mysql.model_copy(update=quick)
    ctx = _app(context).open_context(settings.model_copy(update={"mysql": mysql}))
    try:
        found = [b for name in settings.names for b in latest(ctx, name, limit=BATCHES).batches]
    except TallyError:  # a line is being typed: an error has no place
        return []
    return [
        CompletionItem(str(batch.batch_id), help=f"{batch.pipeline}, {batch.state}")
        for batch in sorted(found, key=lambda batch: -batch.batch_id)
        if str(batch.batch_id).startswith(begun)
    ]


def _app(context: click.Context) -> App:
    found = context.find_root().obj
    return found if isinstance(found, App) else App()


def _settings(context: click.Context) -> "Settings | None":
    """The configuration, by the options that stand before; None if it is not valid."""
    from tally.config.loading import load_settings  # noqa: PLC0415 - --help does without

    app = _app(context)
    app.config = context.find_root().params.get("config") or app.config
    try:
        return load_settings(app.config_path)
    except TallyError:  # the command itself shows what is wrong
        return None


def _items(values: Iterable[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(value) for value in values if value.startswith(begun)]
