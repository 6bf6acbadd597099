"""The driver program, which ``jobs/count_errors.py`` runs."""

import logging
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import click

from tally import logs
from tally.config.loading import load_settings
from tally.context import open_context, shared
from tally.counting.run import run_and_catch_up
from tally.errors import TallyError
from tally.spark.session import spark_session


def _ids(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    """The ids of a text such as ``3,4``."""
    try:
        ids = tuple(int(part) for part in text.split(","))
    except ValueError:
        ids = ()
    if not ids or min(ids) < 1:
        raise click.BadParameter(f"{text!r}: ids such as 3 or 3,4")
    return ids


@click.command()
@click.option(
    "--batch",
    "batch_ids",
    callback=_ids,
    required=True,
    metavar="ID[,ID…]",
    help="Batch to run, or batches of one pipeline.",
)
@click.option(
    "--catch-up-s",
    type=click.FloatRange(min=0),
    default=0,
    metavar="SECONDS",
    help="Count on after a batch that was cut at its size limit, as long as the next one will "
    "probably end within so many seconds. 0: the batch alone.",
)
def main(batch_ids: Sequence[int], catch_up_s: float) -> None:
    """Count planned batches and commit each; of a backlog also those after it, back to back.

    If another replay has superseded segments that a replay's batch was to replace, the batch is
    replanned and then counted.

    The configuration comes from TALLY_CONFIG or ./tally.toml, secrets also from the environment
    or TALLY_SECRETS_FILE.
    """
    logs.configure(logging.WARNING, timed=True)
    try:
        settings = load_settings()
        if settings.spark.is_connect:
            from tally.spark.connect import leave_on_sigterm  # noqa: PLC0415 - brings gRPC

            leave_on_sigterm()
        open_session = partial(spark_session, settings.spark, f"tally {batch_ids[0]}")
        with shared(open_session) as session:
            context = open_context(settings, open_session=session)
            for ran in run_and_catch_up(context, batch_ids, timedelta(seconds=catch_up_s)):
                outcome = (
                    ran.before if ran.committed_before else f"committed {ran.total.records} records"
                )
                click.echo(f"batch {ran.batch_id} {outcome}")
    except TallyError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)
