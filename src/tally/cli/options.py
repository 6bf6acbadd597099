"""Arguments and options that several commands share, and what a shell completes of them.

Pipelines, topics and batches are completed as far as they are found quickly.
"""

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from tally.cli.app import App
from tally.errors import TallyError, UsageError
from tally.formatting import REASON_MAX
from tally.planning.replay_request import parse_minute, parse_range, parse_time

if TYPE_CHECKING:
    from tally.config.settings import Settings

BATCHES: Final = 20
"""The latest batches of each pipeline that are offered."""
PATIENCE_S: Final = 2
"""Seconds to wait for the ledger: a user waits at a prompt."""


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completing(find: "Callable[[App, Settings], Iterable[CompletionItem]]") -> Complete:
    """What offers those of the found items that begin with what is typed."""

    def complete(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
        from tally.config.loading import load_settings  # noqa: PLC0415 - --help does without

        root = context.find_root()
        app = root.obj if isinstance(root.obj, App) else App()
        app.config = root.params.get("config") or app.config
        try:
            found = find(app, load_settings(app.config_path))
        except TallyError:  # a line is being typed: the command itself shows what is wrong
            return []
        return [item for item in found if item.value.startswith(begun)]

    return complete


def _latest_batches(app: App, settings: "Settings") -> Iterable[CompletionItem]:
    """Newest first, with their pipeline and state."""
    from tally.reading.batches import batches  # noqa: PLC0415 - --help does without

    quick = {"connect_timeout_s": PATIENCE_S, "statement_timeout_s": PATIENCE_S}
    mysql = settings.mysql.model_copy(update=quick)
    ctx = app.open_context(settings.model_copy(update={"mysql": mysql}))
    found = [b for name in settings.names for b in batches(ctx, name, limit=BATCHES).batches]
    return [
        CompletionItem(str(batch.batch_id), help=f"{batch.pipeline}, {batch.state}")
        for batch in sorted(found, key=lambda batch: -batch.batch_id)
    ]


def _topics(_: App, settings: "Settings") -> Iterable[CompletionItem]:
    found = {topic for pipeline in settings.pipelines.values() for topic in pipeline.topics}
    return map(CompletionItem, sorted(found))


complete_pipelines = _completing(lambda _, settings: map(CompletionItem, settings.names))
complete_topics = _completing(_topics)
complete_batches = _completing(_latest_batches)


class Text(click.ParamType[Any]):
    """A text that is made a value of.

    Args:
        name: What the usage line calls it, there in capitals.
        parse: Makes the value; a ValueError or UsageError says what is wrong with the text.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value."""
        try:
            return self.parse(value)
        except UsageError as error:
            self.fail(f"{error.what}; {error.next_step}", param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Number(click.IntRange):
    """A whole number within bounds; any other text is answered with what is expected.

    Args:
        what: What is expected, in a few words.
        name: What the usage line calls it, there in capitals.
        min: The smallest.
        max: The largest; any when None.
    """

    def __init__(
        self,
        what: str,
        *,
        name: str = click.IntRange.name,
        min: int = 1,  # noqa: A002 - click's names
        max: int | None = None,  # noqa: A002 - as above
    ) -> None:
        super().__init__(min=min, max=max)
        self.name, self.what = name, what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        if isinstance(value, str) and not value.strip().removeprefix("-").isdecimal():
            self.fail(f"{value!r} is not {self.what}", param, ctx)
        return super().convert(value, param, ctx)


def _check_reason(text: str) -> str:
    reason = text.strip()
    if not reason.strip("….'\""):  # as it stands in a next step that was pasted
        raise ValueError("say why; the ledger keeps it")
    if len(reason) > REASON_MAX:
        raise ValueError(f"at most {REASON_MAX} characters")
    return reason


BATCH: Final = Number("the number of a batch, as tally batches lists them", name="batch")
REPLAY: Final = Number("the number of a replay, as tally replays lists them", name="replay")
OFFSET: Final = Number("an offset, such as 300", name="offset", min=0)
PARTITION: Final = Number(
    "a partition's number, such as 0; --topic names its topic", name="number", min=0
)
RANGE: Final = Text("topic/partition:from-until", parse_range)
TIME: Final = Text("time", parse_time)
MINUTE: Final = Text("'yyyy-mm-dd hh:mm'", parse_minute)

pipeline = click.argument("pipeline", required=False, shell_complete=complete_pipelines)
batch = click.argument("batch_id", metavar="BATCH", type=BATCH, shell_complete=complete_batches)

pipeline_option = functools.partial(
    click.option, "--pipeline", metavar="NAME", shell_complete=complete_pipelines
)
topic_option = functools.partial(
    click.option, "--topic", metavar="NAME", shell_complete=complete_topics
)
partition_option = functools.partial(click.option, "--partition", type=PARTITION)
batch_option = functools.partial(
    click.option, "--batch", type=BATCH, shell_complete=complete_batches
)
limit = functools.partial(click.option, "--limit", type=Number("a number of rows", max=1_000_000))
reason_option = functools.partial(
    click.option,
    "--reason",
    type=Text("text", _check_reason),
    help="Why; kept in the ledger with who and when.",
)

reason = reason_option(required=True)
check = click.option(
    "--check", is_flag=True, help="Exit with 1 unless the health is ok: neither FAIL nor warn."
)
dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
yes = click.option("--yes", is_flag=True, help="Do not ask.")


def _sets(attribute: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    """A flag's callback: it sets how the output is written."""

    def set_it(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            setattr(context.ensure_object(App).out, attribute, True)

    return set_it


json_option = click.Option(
    ["--json"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_sets("as_json"),
    help="Write one JSON document instead of text.",
)
wide = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_sets("wide"),
    help="Show all columns, and no row on several lines.",
)
