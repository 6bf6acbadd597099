"""The pages from which something is started: replays, losses, audits; and what has become of it."""

from collections.abc import Mapping
from typing import Any, Final

from airflow.models.xcom import XCOM_RETURN_KEY

from tally.airflow.console.access import READ_REPORTS, is_paused, may
from tally.airflow.console.listings import batches_table, losses_table
from tally.airflow.console.page import ROWS, Asked, Page
from tally.airflow.console.runs import find_xcom, latest_audits, latest_report
from tally.airflow.console.tables import SHOWN_MAX, Table
from tally.airflow.losses_dag import REFUSED_KEY, SETTLE, as_seen
from tally.airflow.policies import AUDIT_SUFFIX, LOSSES_SUFFIX, REPLAY_SUFFIX
from tally.airflow.replay_dag import PREVIEW, REPLAY_KEY, REQUEST, SHOWN_KEY
from tally.airflow.replay_form import CHOICES, REASON_MAX
from tally.context import Context
from tally.errors import StatementError, UsageError
from tally.losses.losses import losses
from tally.reading import columns
from tally.reading.batches import RUN_BATCHES_MAX, run_batches
from tally.reading.columns import Column
from tally.replay.run import ReplayOutcome, list_replays, replay_outcome

AUDITS: Final = 10
"""Audits that are listed."""

AUDIT_RUNS: Final = (
    Column("ended_at", "ended"),
    Column("state", "run"),
    *(Column(key, key) for key in ("holds", "segments", "records", "minutes")),
    Column("matched", "lines"),
    Column("findings", "violations"),
)


def replay_page(asked: Asked) -> Page:
    """The form of a replay, filled in from the address, and earlier replays."""
    pipeline, query = asked.pipeline, asked.query
    topics = asked.ctx.settings.pipeline(pipeline).topics
    what = query.get("what", "minutes")
    if what not in CHOICES:  # without a choice the DAG would take its own default, everything
        raise UsageError(f"what = {what!r} is not known", next_step=f"one of {', '.join(CHOICES)}")
    found = list_replays(asked.ctx, pipeline, limit=ROWS).replays
    return Page(
        template="replay.html",
        title="Replay",
        values={
            "query": {**query, "what": what},
            "choices": CHOICES,
            # That of a link, too: a topic may have been counted and be configured no more.
            "topics": list(dict.fromkeys([*topics, *filter(None, [query.get("topic")])])),
            "reason_max": REASON_MAX,
            "dag_id": pipeline + REPLAY_SUFFIX,
        },
        tables=(
            Table.of(
                columns.REPLAY,
                found,
                name="replays",
                title=f"The latest {ROWS} replays"
                if len(found) == ROWS
                else "Replays, newest first",
            ),
        ),
    )


def losses_page(asked: Asked) -> Page:
    """Open losses with the form that decides them, and what was decided before."""
    found = losses(asked.ctx, asked.pipeline).losses
    undecided = [loss for loss in found if loss.state == "open"]
    shown = undecided[:SHOWN_MAX]  # what is decided is what is seen
    decided = [loss for loss in reversed(found) if loss.state != "open"]
    return Page(
        template="losses.html",
        title="Losses",
        values={
            "open": undecided,
            "seen": [as_seen(loss) for loss in shown],
            "reason_max": REASON_MAX,
            "dag_id": asked.pipeline + LOSSES_SUFFIX,
        },
        tables=(
            losses_table(undecided, "open", "Open losses, oldest first"),
            losses_table(decided, "decided", "Decided, newest first"),
        ),
    )


def audit_page(asked: Asked) -> Page:
    """What the last audits have found, for whoever may see it."""
    dag_id = asked.pipeline + AUDIT_SUFFIX
    may_see = may(asked.user, READ_REPORTS, dag_id)
    runs = latest_audits(dag_id, limit=AUDITS) if may_see else []
    audit = latest_report(dag_id) if may_see else None
    latest = None if audit is None else audit.report
    return Page(
        template="audit.html",
        title="Audit",
        values={
            "audit": audit,
            "latest": latest,
            "dag_id": dag_id,
            "may_see": may_see,
            "paused": is_paused(dag_id),
        },
        tables=(
            Table(
                name="violations",
                title="Violations that the latest audit has found",
                columns=columns.VIOLATION,
                rows=(latest or {}).get("violations", []),
                empty="none" if latest else "not known",
            ),
            Table(
                name="audits",
                title=f"The latest {AUDITS} audits" if len(runs) == AUDITS else "Audits",
                columns=AUDIT_RUNS,
                rows=[
                    {"ended_at": run.ended_at, "state": run.state, **(run.report or {})}
                    for run in runs
                ],
            ),
        ),
    )


def losses_run(dag_id: str, run_id: str, conf: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a run of a losses DAG was to decide, and what it has."""
    seen = conf.get("seen")
    shown = seen if isinstance(seen, list) else []  # whoever triggers the DAG may send anything
    return {
        "decision": {"accept": "accept", "keep": "keep blocked"}.get(str(conf.get("decision"))),
        "decided": [str(one.get("range")) for one in shown if isinstance(one, Mapping)],
        "done": find_xcom(dag_id, run_id, SETTLE, XCOM_RETURN_KEY),
        "refused": find_xcom(dag_id, run_id, SETTLE, REFUSED_KEY),
    }


def replay_run(ctx: Context, pipeline: str, run_id: str, *, has_ended: bool) -> Mapping[str, Any]:
    """The preview of a run of a replay DAG, and what the ledger says of its replay."""
    dag_id = pipeline + REPLAY_SUFFIX
    replay_id = find_xcom(dag_id, run_id, REQUEST, REPLAY_KEY)
    outcome, slow = None, None
    if replay_id is not None:
        number = int(replay_id)
        try:
            # What it changes is added up only at its end: a page renews itself meanwhile.
            outcome = replay_outcome(ctx, number, with_changes=has_ended)
        except StatementError as error:  # ended by the server: the rest of the page is quick
            slow = error
            outcome = replay_outcome(ctx, number, with_changes=False)
        if outcome.pipeline != pipeline:  # the user may have no right to that one
            outcome = None
    shown = find_xcom(dag_id, run_id, PREVIEW, SHOWN_KEY)
    return {"shown": shown, "outcome": outcome, "slow": slow}


def batches_of_run(
    ctx: Context, pipeline: str, dag_id: str, run_id: str, replay: ReplayOutcome | None = None
) -> Table:
    """The batches that were planned for a run, or for its replay."""
    replay_id = None if replay is None else replay.replay_id
    found = run_batches(ctx, pipeline, dag_id, run_id, replay_id).batches
    are = "Batches of this run, newest first"
    if len(found) == RUN_BATCHES_MAX:
        are = f"The latest {RUN_BATCHES_MAX} batches of this run"
    return batches_table(found, "batches", are, of="pipelines/" + pipeline + "/")
