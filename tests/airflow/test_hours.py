"""Complete hours as events of an asset: once each, in order; and a DAG that runs for each."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.dag_run import AIRFLOW, RunDag, rows_of
from tests.servers import PROJECT
from tests.world import World

pytestmark = [*AIRFLOW, pytest.mark.stack]

State = tuple[str, str, int]


def announced(world: World) -> list[State]:
    """The events of the hours in the order of Airflow's ids: hour, state and lines."""
    from airflow.models.asset import AssetEvent, AssetModel
    from sqlalchemy import select

    events = (
        select(AssetEvent.partition_key, AssetEvent.extra)
        .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        .where(AssetModel.name == f"tally_{world.name}_hours")
        .order_by(AssetEvent.id)
    )
    found = [(key, extra["hours"][key]) for key, extra in rows_of(events)]
    return [(key, hour["state"], hour["log_count"]) for key, hour in found]


def complete_later(world: World, hours: int) -> None:
    """Let so many more hours be complete than are."""
    later = "update progress set complete_before = complete_before + interval %s hour"
    world.execute(f"{later} where pipeline = %s", (hours, world.name))


def first_open(world: World) -> Any:
    """The first hour that is not complete."""
    (row,) = world.rows("select complete_before from progress where pipeline = %s", (world.name,))
    return row["complete_before"].replace(minute=0)


def test_each_complete_hour_is_announced_once_and_in_order(world: World, run_dag: RunDag) -> None:
    """Also when the task is cleared; and again when a line has changed it since."""
    run_dag(world.name)
    last = first_open(world)
    hours = [(last + timedelta(hours=number)).isoformat() for number in range(-1, 3)]
    assert announced(world) == [(hours[0], "complete", 0)]
    again = run_dag(world.name, again=True)
    assert again.tasks["complete"] == "skipped"
    complete_later(world, 3)
    assert run_dag(world.name).tasks["complete"] == "success"
    wanted = [(hour, "complete", 0) for hour in hours]
    assert announced(world) == wanted
    for number in (2, 0):
        late = f"{hours[number].replace('T', ' ')} ERROR late"
        world.produce([late, late])
        world.minute()
    assert run_dag(world.name).tasks["complete"] == "success"
    wanted += [(hours[number], "amended", 2) for number in (2, 0)]
    assert announced(world) == wanted
    assert run_dag(world.name).tasks["complete"] == "skipped"
    assert announced(world) == wanted


def test_of_a_backlog_each_run_announces_a_part(
    world: World, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of hours that are complete, and of hours that have changed by one batch."""
    monkeypatch.setattr("tally.reading.hours.HOURS_MAX", 2)
    run_dag(world.name)
    ((hour, _, _),) = announced(world)
    first = datetime.fromisoformat(hour)
    complete_later(world, 3)
    hours = [(first + timedelta(hours=number)).isoformat() for number in range(4)]
    told = [1, 3, 4, 4]
    for number, wanted in enumerate(told):
        assert [one for one, _, _ in announced(world)] == hours[:wanted], number
        run_dag(world.name)
    world.produce([f"{late.replace('T', ' ')} ERROR late" for late in hours])
    world.minute()
    for wanted in (2, 4, 4):
        run_dag(world.name)
        changed = [(one, "amended", 1) for one in hours]
        assert announced(world)[4:] == changed[:wanted]


def test_an_event_that_someone_made_by_hand_is_passed_over(world: World, run_dag: RunDag) -> None:
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    run_dag(world.name)
    found = announced(world)
    with create_session() as session:
        name = AssetModel.name == f"tally_{world.name}_hours"
        asset_id = session.scalar(select(AssetModel.id).where(name))
        for extra in ({"from_rest_api": True}, {"hours_before": None}):
            session.add(AssetEvent(asset_id=asset_id, extra=extra))
    assert run_dag(world.name).tasks["complete"] == "skipped"
    complete_later(world, 1)
    run_dag(world.name)
    hour = first_open(world) - timedelta(hours=1)
    with create_session() as session:
        session.query(AssetEvent).filter(AssetEvent.partition_key.is_(None)).delete()
    assert announced(world) == [*found, (hour.isoformat(), "complete", 0)]


def test_the_documented_dag_runs_for_every_complete_hour(
    world: World, run_dag: RunDag, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Created by Airflow's own scheduler from the events; it is told the hour and its state."""
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.jobs.job import Job
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.sdk.definitions.dag import _run_task
    from airflow.utils.session import create_session
    from sqlalchemy import select, update

    text = (PROJECT / "docs" / "airflow.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(from airflow\.sdk.*?)```", text, re.DOTALL)
    file = tmp_path / "hourly_report.py"
    file.write_text(example.replace("error_log", world.name), encoding="utf-8")
    run_dag(world.name)
    bag = BundleDagBag(dag_folder=tmp_path, bundle_name="dags-folder", bundle_path=tmp_path)
    assert bag.import_errors == {}
    sync_bag_to_db(bag, "dags-folder", None)
    with create_session() as session:
        session.execute(update(DagModel).values(is_paused=False))
    complete_later(world, 2)
    run_dag(world.name)
    hours = [hour for hour, _, _ in announced(world)][-2:]
    with create_session() as session:
        SchedulerJobRunner(Job())._create_dagruns_for_partitioned_asset_dags(session)
    with create_session() as session:
        of_report = select(DagRun).where(DagRun.dag_id == "hourly_report")
        runs = session.scalars(of_report.order_by(DagRun.partition_key)).all()
        instances = [ti for run in runs for ti in run.get_task_instances(session=session)]
    assert [run.partition_key for run in runs] == hours
    for instance in instances:
        _run_task(ti=instance, task=bag.dags["hourly_report"].get_task("report"))
    printed = "".join(capfd.readouterr())
    assert [f"{hour} 0 complete" in printed for hour in hours] == [True, True]
