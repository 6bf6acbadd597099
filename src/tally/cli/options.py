"""Arguments and options that several commands share."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from tally.cli import completion
from tally.cli.app import App
from tally.errors import ReplayRefusedError
from tally.planning.replay_request import parse_time

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

# The width of the ledger's columns.
REASON_CHARACTERS: Final = 1000

Parsed = TypeVar("Parsed")


def parsed(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """A parser for click, which adds the option's name to the error of ``parse``."""

    def read(text: str) -> Parsed:
        try:
            return parse(text)
        except ReplayRefusedError as error:
            raise click.BadParameter(f"{error.what}; {error.next_step}") from error

    return read


read_time = parsed(parse_time)


class Number(click.IntRange):
    """A whole number within bounds; any other text is answered with what is expected.

    Args:
        what: What is expected, in a few words.
        min: The smallest.
        max: The largest; any when None.
    """

    def __init__(self, what: str, *, min: int = 1, max: int | None = None) -> None:  # noqa: A002 - click's names
        super().__init__(min=min, max=max)
        self.what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        if isinstance(value, str) and not value.strip().removeprefix("-").isdecimal():
            self.fail(f"{value!r} is not {self.what}", param, ctx)
        return super().convert(value, param, ctx)


BATCH: Final = Number("the number of a batch, as tally batches lists them")
REPLAY: Final = Number("the number of a replay, as tally replays lists them")
OFFSET: Final = Number("an offset, such as 300", min=0)
PARTITION: Final = Number("a partition's number, such as 0; --topic names its topic", min=0)

pipeline = click.argument("pipeline", required=False, shell_complete=completion.pipelines)

batch = click.argument("batch_id", metavar="BATCH", type=BATCH, shell_complete=completion.batches)

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


def _check_reason(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None:  # click asks for it where it is required
        return None
    reason = value.strip()
    if not reason.strip("….'\""):  # as it stands in a next step that was pasted
        raise click.BadParameter("say why; the ledger keeps it")
    if len(reason) > REASON_CHARACTERS:
        raise click.BadParameter(f"at most {REASON_CHARACTERS} characters")
    return reason


reason = click.option(
    "--reason",
    required=True,
    metavar="TEXT",
    callback=_check_reason,
    help="Why; kept in the ledger with who and when.",
)

# For a command that changes something only with some of its options, and requires a reason then.
optional_reason = click.option(
    "--reason",
    metavar="TEXT",
    callback=_check_reason,
    help="Why; kept in the ledger with who and when.",
)


def limit(default: int, what: str) -> Decorator:
    """``--limit``: how many rows at most."""
    return click.option(
        "--limit",
        type=Number("a number of rows", max=1_000_000),
        default=default,
        show_default=True,
        help=f"{what} at most.",
    )
