"""``pipelines``: all configured pipelines, a line each."""

from collections.abc import Sequence

import click

from tally.app.health import Health, Problem
from tally.app.overview import PipelineSummary, PipelinesView, overview
from tally.app.surroundings import look_around
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.extensions import Unanswered, airflow_environment
from tally.cli.options import check_option, json_option, wide_option
from tally.cli.ui.output import Output
from tally.cli.ui.values import HEALTH_LABELS, moment, number
from tally.errors import EXIT_FINDINGS


@click.command(
    cls=Command,
    examples=["tally pipelines", "tally pipelines --json | jq '.pipelines[] | {pipeline, health}'"],
)
@check_option
@wide_option
@json_option
@click.pass_context
def pipelines(context: click.Context, check: bool) -> None:
    """List all pipelines with health, lag and last commit.

    Below the lines stands what is wrong with which. A pipeline that is configured wrong is listed
    as well; it does not keep the others from counting. When Kafka does not answer, only the
    ledger's side is shown, with exit code 3.

    With --check, Airflow is also asked for paused DAGs, where one is configured.
    """
    show_all(context, check=check)


def show_all(context: click.Context, *, check: bool) -> None:
    """Show all pipelines; exit as the command does.

    Raises:
        TallyError: Kafka did not answer, or refused; the ledger's side was shown.
    """
    app = context.ensure_object(App)
    unanswered = Unanswered(app)
    view = overview(
        app.context,
        surroundings=look_around(app.settings, airflow_environment(app) if check else None),
        on_unanswered=unanswered,
    )
    if app.out.as_json:
        app.out.view(view)
    else:
        _show(app, view)
    unanswered.check()
    context.exit(EXIT_FINDINGS if check and view.health is not Health.OK else 0)


def _show(app: App, view: PipelinesView) -> None:
    app.out.table(
        ["PIPELINE", "HEALTH", "LAG", "LAST COMMIT", "TABLE"],
        [_row(summary) for summary in view.pipelines],
        numbers=["LAG"],
        texts=["LAST COMMIT"],
    )
    for summary in view.pipelines:
        show_problems(app.out, summary.problems, of=f"{summary.pipeline}: ")


def show_problems(out: Output, problems: Sequence[Problem], *, of: str = "") -> None:
    """Show each problem and what to do about it.

    Args:
        out: Where to write.
        problems: What is wrong.
        of: Written before each.
    """
    for problem in problems:
        out.labelled(HEALTH_LABELS[problem.health], f"{of}{problem.reason}: {problem.detail}")
        if problem.next_step:
            out.line(f"      next: {problem.next_step}")


def _row(summary: PipelineSummary) -> list[str]:
    return [
        summary.pipeline,
        HEALTH_LABELS[summary.health],
        number(summary.lag_offsets),
        moment(summary.last_committed_at),
        summary.result_table or "",
    ]
