"""The task that notifies: by any notifier of Airflow's, once for each alert."""

from pathlib import Path

import pytest
from airflow.sdk.bases.notifier import BaseNotifier

from tests.airflow.dag_run import AIRFLOW, RunDag
from tests.minute.test_alerts import MINUTE, begun
from tests.world import World

pytestmark = [*AIRFLOW, pytest.mark.stack]


class Note(BaseNotifier):
    """Writes a text behind a file's; fails while there is no such file."""

    template_fields = ("text",)

    def __init__(self, path: str, text: str) -> None:
        super().__init__()
        self.path, self.text = path, text

    def notify(self, context: object) -> None:  # noqa: ARG002 - Airflow's signature
        """Write it."""
        with Path(self.path).open("r+", encoding="utf-8") as file:
            file.read()
            file.write(f"{self.text}\n")


def test_an_alert_is_notified_once(world: World, run_dag: RunDag, tmp_path: Path) -> None:
    """When it begins and when it ends; not when the run is cleared; again after a failure."""
    path = tmp_path / "notes"
    note = {"class": f"{__name__}.Note", "path": str(path), "text": "now {{ alert.text }}"}
    first = begun(world, alert_below=1, notifiers=[note])
    begins = f"now {world.name}: 0 lines, fewer than 1, at 2037-01-01 12:00"
    ahead = "update progress set complete_before = %s where pipeline = %s"
    world.execute(ahead, (first + MINUTE, world.name))
    failed = run_dag(world.name)
    assert (failed.state, failed.tasks["alert"]) == ("failed", "failed")
    path.touch()
    assert run_dag(world.name, again=True).tasks["alert"] == "success"
    assert path.read_text(encoding="utf-8") == f"{begins}\n"
    assert run_dag(world.name, again=True).tasks["alert"] == "skipped"
    other = {**note, "path": str(tmp_path / "missing")}
    world.configure(notifiers=[other, note], alert_below=1)
    world.execute("update alert set notified_at = null where pipeline = %s", (world.name,))
    # One that fails is said; who was told is not told again.
    assert run_dag(world.name).tasks["alert"] == "failed"
    assert path.read_text(encoding="utf-8") == f"{begins}\n{begins}\n"
    assert run_dag(world.name, again=True).tasks["alert"] == "skipped"
    path.write_text(f"{begins}\n", encoding="utf-8")
    world.configure(notifiers=[note], alert_below=1)
    world.produce([f"{first + MINUTE:%Y-%m-%d %H:%M}:00 ERROR x"])
    world.minute()
    world.execute(ahead, (first + 2 * MINUTE, world.name))
    run_dag(world.name)
    assert path.read_text(encoding="utf-8") == f"{begins}\n{begins}, and not since\n"


def test_an_alert_is_notified_also_where_the_count_fails(
    world: World, run_dag: RunDag, tmp_path: Path
) -> None:
    """Lines that are not counted may be just what an alert is about."""
    path = tmp_path / "notes"
    path.touch()
    note = {"class": f"{__name__}.Note", "path": str(path), "text": "{{ alert.rule }}"}
    first = begun(world, alert_below=1, notifiers=[note])
    ahead = "update progress set complete_before = %s where pipeline = %s"
    world.execute(ahead, (first + MINUTE, world.name))
    world.plan()  # judges
    failed = run_dag(world.name, {"no": "such key"})
    assert (failed.tasks["count"], failed.tasks["alert"]) == ("failed", "success")
    assert path.read_text(encoding="utf-8") == "below\n"
