"""The pages from which something is started: replays, losses, audits; and what has become of it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from airflow.models import DagRun
from airflow.models.xcom import XCOM_RETURN_KEY
from airflow.utils.state import State
from fastapi import status

from tally.airflow.console import runs
from tally.airflow.console.access import READ_REPORTS, may
from tally.airflow.console.page import ROWS, SHOWN_MAX, Asked, Page, Table
from tally.airflow.console.runs import AuditRun, find_xcom, is_paused
from tally.airflow.losses_dag import REFUSED_KEY, SETTLE, as_seen
from tally.airflow.policies import AUDIT_SUFFIX, LOSSES_SUFFIX, REPLAY_SUFFIX
from tally.airflow.replay_dag import PREVIEW, REPLAY_KEY, REQUEST, SHOWN_KEY
from tally.airflow.replay_form import CHOICES
from tally.airflow.settling import adoption_as_seen
from tally.context import Context
from tally.errors import StatementError
from tally.formatting import REASON_MAX
from tally.ledger.invariants import Violation
from tally.maintenance.decisions import adoption_of, losses
from tally.planning.blocks import OTHER_RECORDS, BlockReason
from tally.reading import columns
from tally.reading.batches import RUN_BATCHES_MAX, run_batches
from tally.reading.columns import Column
from tally.replay.run import list_replays, replay_outcome

AUDITS: Final = 10
"""Audits that are listed."""


def _reported(key: str) -> Callable[[AuditRun], Any]:
    return lambda run: run.report.get(key)


AUDIT_RUNS: Final = (
    Column("ended_at", "ended"),
    Column("state", "run"),
    *(Column(key, key, of=_reported(key)) for key in ("holds", "segments", "records", "minutes")),
    Column("matched", "lines", of=_reported("matched")),
    Column("findings", "violations", of=_reported("findings")),
)


def replay_page(asked: Asked) -> Page:
    """The form of a replay, filled in from the address, and earlier replays."""
    pipeline, query = asked.pipeline, asked.query
    topics = asked.ctx.settings.pipeline(pipeline).topics
    found = list_replays(asked.ctx, pipeline, limit=ROWS).replays
    title = f"The latest {ROWS} replays" if len(found) == ROWS else "Replays, newest first"
    values = {
        # Without a choice the DAG would take its own default, everything.
        "what": query.one_of("what", CHOICES) or "minutes",
        "choices": CHOICES,
        # That of a link, too: a topic may have been counted and be configured no more.
        "topics": list(dict.fromkeys([*topics, *filter(None, [query.get("topic")])])),
        "reason_max": REASON_MAX,
        "dag_id": pipeline + REPLAY_SUFFIX,
    }
    return Page("Replay", values, [Table("replays", title, columns.REPLAY, found)])


def losses_page(asked: Asked) -> Page:
    """Open losses with the form that decides them, and what was decided before.

    What else there is to decide Kafka must be asked for (:func:`decide_page`).
    """
    found = losses(asked.ctx, asked.pipeline).losses
    undecided = [loss for loss in found if loss.state == "open"]
    shown = undecided[:SHOWN_MAX]  # what is decided is what is seen
    decided = [loss for loss in reversed(found) if loss.state != "open"]
    values = {
        "open": undecided,
        "seen": [as_seen(loss) for loss in shown],
        "reason_max": REASON_MAX,
        "dag_id": asked.pipeline + LOSSES_SUFFIX,
    }
    tables = (
        Table("open", "Open losses, oldest first", columns.LOSS, undecided),
        Table("decided", "Decided, newest first", columns.LOSS, decided),
    )
    return Page("Decisions", values, tables)


def decide_page(asked: Asked) -> Page:
    """What else waits for a decision: topics that were created again, and open batches.

    Of a topic on another cluster the records may be copies of what is counted. Where to begin there
    is chosen on the command line, which previews it.
    """
    view = asked.statuses.of(asked.pipeline)
    known = {p.partition.topic: p.topic_id for p in view.partitions}
    changed = {b.place: b.reason for b in view.blocks if b.reason in OTHER_RECORDS}
    adoptions = [adoption_of(asked.ctx, asked.pipeline, topic) for topic in changed]
    values = {
        "status": view,
        "adoptions": [(one, known.get(one.topic), [adoption_as_seen(one)]) for one in adoptions],
        "moved": [topic for topic in changed if changed[topic] is BlockReason.CLUSTER_CHANGED],
        "reason_max": REASON_MAX,
        "dag_id": asked.pipeline + LOSSES_SUFFIX,
    }
    return Page("Decide", values)


def audit_page(asked: Asked) -> Page:
    """What the last audits have found, for users who may see it."""
    dag_id = asked.pipeline + AUDIT_SUFFIX
    may_see = may(asked.user, READ_REPORTS, dag_id)
    latest = runs.audits(dag_id, limit=AUDITS) if may_see else []
    reported = runs.audits(dag_id, limit=1, reported=True) if may_see else []
    audit = next(iter(reported), None)
    violations = [Violation(**one) for one in audit.report["violations"]] if audit else []
    values = {"audit": audit, "dag_id": dag_id, "may_see": may_see, "paused": is_paused(dag_id)}
    found = "Violations that the latest audit has found"
    none = "none" if audit else "not known"
    title = f"The latest {AUDITS} audits" if len(latest) == AUDITS else "Audits"
    tables = (
        Table("violations", found, columns.VIOLATION, violations, empty=none),
        Table("audits", title, AUDIT_RUNS, latest),
    )
    return Page("Audit", values, tables)


def pipeline_of(dag_id: str) -> tuple[str, str]:
    """The pipeline of a DAG, and which of its DAGs it is; '' for the one that counts."""
    for suffix in (REPLAY_SUFFIX, LOSSES_SUFFIX, AUDIT_SUFFIX):
        if dag_id.endswith(suffix):
            return dag_id.removesuffix(suffix), suffix
    return dag_id, ""


def run_page(dag_id: str, run_id: str, asked: Asked) -> Page:
    """A run of one of Tally's DAGs, also as a tab in Airflow."""
    run: DagRun | None = DagRun.find_duplicate(dag_id=dag_id, run_id=run_id)
    pipeline, kind = pipeline_of(dag_id)
    known = pipeline in asked.ctx.settings.names
    values: dict[str, Any] = {"dag_id": dag_id, "run_id": run_id, "run": run, "kind": kind}
    values["known"] = known
    if run is None or not known:
        return Page("Run", values, code=status.HTTP_404_NOT_FOUND)
    has_ended = run.state in State.finished_dr_states
    values |= {"has_ended": has_ended, "waits": not has_ended and is_paused(dag_id)}
    values |= {"tasks": runs.tasks_of(dag_id, run_id), "tasks_max": runs.TASKS_MAX}
    if kind == LOSSES_SUFFIX:
        values["done"] = find_xcom(dag_id, run_id, SETTLE, XCOM_RETURN_KEY)
        values["refused"] = find_xcom(dag_id, run_id, SETTLE, REFUSED_KEY)
    replay_id = None
    if kind == REPLAY_SUFFIX:
        values |= replay_run(asked.ctx, pipeline, run_id, has_ended=has_ended)
        replay_id = values["outcome"] and values["outcome"].replay_id
    found = run_batches(asked.ctx, pipeline, dag_id, run_id, replay_id)
    title = "Batches of this run, newest first"
    if len(found) == RUN_BATCHES_MAX:
        title = f"The latest {RUN_BATCHES_MAX} batches of this run"
    links = {"batch_id": f"pipelines/{pipeline}/batches/{{}}"}
    return Page("Run", values, [Table("batches", title, columns.BATCH, found, links=links)])


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
