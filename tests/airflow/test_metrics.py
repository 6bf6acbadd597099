"""Metrics: for Prometheus with a token, and from the tasks where Airflow's own go."""

import json
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tally.status.measurements import METRICS
from tests.airflow.dag_run import AIRFLOW, RunDag
from tests.airflow.ledgers import count, lose
from tests.programs import TestPrograms
from tests.servers import PROJECT
from tests.world import World, make_settings

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

pytestmark = [*AIRFLOW]

ALERTS = PROJECT / "monitoring" / "tally-alerts.yml"
DASHBOARD = PROJECT / "monitoring" / "tally-dashboard.json"
URL = "/tally/metrics"
Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(client: "TestClient", token: str) -> Figures:
    answer = client.get(URL, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def figure(found: Figures, name: str, pipeline: str, **labels: str) -> float | None:
    return found.get((f"tally_{name}", frozenset({"pipeline": pipeline, **labels}.items())))


def test_a_scraper_needs_the_token(
    viewer: "TestClient", metrics_token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also whoever is signed in; a file without a token lets nobody in."""
    with monkeypatch.context() as patch:
        patch.delenv("TALLY_CONSOLE__METRICS_TOKEN_FILE")
        for headers in ({}, {"Authorization": "Bearer "}):
            assert viewer.get(URL, headers=headers).status_code == 404
    token, part = metrics_token, metrics_token[:-1]
    near = ("Bearer", "Bearer ", f"Bearer {part}", f"Bearer {token}x", f"Basic {token}")
    for given in ("", *near, token, "Bearer ü"):
        answer = viewer.get(URL, headers={"Authorization": given.encode()})
        assert (answer.status_code, answer.content) == (401, b""), given
        assert answer.headers["www-authenticate"] == "Bearer"
    path = tmp_path / "token"
    monkeypatch.setenv("TALLY_CONSOLE__METRICS_TOKEN_FILE", str(path))
    for text in (None, "", " \n", "short"):
        if text is not None:
            path.write_text(text, encoding="utf-8")
        answer = viewer.get(URL, headers={"Authorization": f"Bearer {(text or '').strip()}"})
        assert (answer.status_code, answer.content) == (503, b"")


@pytest.mark.stack
def test_a_scrape_says_what_the_ledger_and_kafka_say(
    world: World, run_dag: RunDag, client: "TestClient", metrics_token: str
) -> None:
    before = time.time()
    count(world, {"2017-07-30 14:09": 3}, dead_letters=["x", "y"])
    world.produce(["a line", "another"], 0)
    world.produce(["a line"], 1)
    lose(world, 1)
    run_dag(f"{world.name}_audit")
    complete = "complete_before = '2017-07-30 14:10:00', counted_through = utc_timestamp(6)"
    world.execute(f"update progress set {complete} where pipeline = %s", (world.name,))
    alert = "(%s, 'below', true, '2017-07-30 14:09:00', 3, 4, utc_timestamp(6), null)"
    world.execute(f"insert into alert values {alert}", (world.name,))
    found = scraped(client, metrics_token)

    def of(name: str, **labels: str) -> float | None:
        return figure(found, name, world.name, **labels)

    assert (of("ledger_up"), of("kafka_up"), of("lag_offsets")) == (1, 1, 3)
    for partition, lag, counted in (("0", 2, 5), ("1", 1, 0)):
        place = {"topic": world.topic, "partition": partition}
        assert of("partition_lag_offsets", **place) == lag
        assert of("counted_offsets_total", **place) == counted
    assert before - 1 <= (of("oldest_uncounted_timestamp_seconds") or 0) <= time.time()
    assert (of("retention_reaches_uncounted_timestamp_seconds") or 0) > time.time()
    assert 0.9 < (of("retention_left_ratio") or 0) <= 1
    assert (of("open_losses"), of("open_loss_offsets")) == (1, 2)
    assert of("blocked_partitions") == 0  # what is lost is behind what is read next
    assert before - 1 <= (of("last_commit_timestamp_seconds") or 0) <= time.time()
    batch = ("last_batch_records", "last_batch_lines", "last_batch_dead_letters")
    assert [of(metric) for metric in batch] == [5, 3, 2]
    assert (of("recent_records"), of("recent_dead_letters")) == (5, 2)
    assert (of("last_batch_continuations"), of("recent_continuations")) == (0, 0)
    assert of("records_per_second") == round(5 / 900, 2)
    assert of("health") == 2
    assert of("problem", reason="open-loss") == 1
    assert of("problem", reason="paused") == 1  # as Airflow has it at first
    assert of("problem", reason="late") == 0
    assert of("last_batch_step_seconds", step="committed") is not None
    assert (of("audit_holds"), of("audit_violations")) == (1, 0)
    assert (of("audit_timestamp_seconds") or 0) >= before - 1
    assert of("complete_minute_lines") == 3
    assert before - 1 <= (of("counted_through_timestamp_seconds") or 0) <= time.time() + 1
    assert of("alert", rule="below") == 1
    of_labels = {"complete_minute_label_lines"}
    assert {name.removeprefix("tally_") for name, _ in found} == set(METRICS) - of_labels


@pytest.mark.stack
def test_what_cannot_be_read_is_a_figure_too(
    world: World, client: "TestClient", metrics_token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pipeline's trouble hides no other; a ledger or a Kafka that is down is said as 0."""
    wrong = {"topics": ["a-topic"], "level": "ERROR"}
    make_settings(world.stack, world.config, {"a_wrong_one": wrong})
    alone = scraped(client, metrics_token)
    assert figure(alone, "problem", "a_wrong_one", reason="disabled") == 1
    make_settings(world.stack, world.config, {world.name: world.keys, "a_wrong_one": wrong})
    found = scraped(client, metrics_token)
    assert figure(found, "problem", "a_wrong_one", reason="disabled") == 1
    assert figure(found, "ledger_up", world.name) == 1
    monkeypatch.setenv("TALLY_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("TALLY_KAFKA__REQUEST_TIMEOUT_S", "2")
    found = scraped(client, metrics_token)
    assert figure(found, "kafka_up", world.name) == 0
    assert figure(found, "lag_offsets", world.name) is None
    monkeypatch.setenv("TALLY_MYSQL__PORT", "1")
    found = scraped(client, metrics_token)
    assert figure(found, "ledger_up", world.name) == 0


# --- alert rules and dashboard


@pytest.fixture(scope="module")
def promtool() -> Path:
    programs = TestPrograms(PROJECT / ".tally" / "downloads")
    programs.install(print)
    return programs.promtool.path


def checked(promtool: Path, *words: str | Path) -> str:
    """What promtool says; it must be content."""
    ended = subprocess.run([promtool, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_alerts_are_raised_when_they_should(promtool: Path) -> None:
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert f"{len(rules)} rules found" in checked(promtool, "check", "rules", ALERTS)
    cases = Path(__file__).with_name("alerts.test.yml")
    checked(promtool, "test", "rules", cases)
    raised = {
        case["alertname"]
        for test in yaml.safe_load(cases.read_text(encoding="utf-8"))["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert raised == {rule["alert"] for rule in rules}


def test_the_dashboard_asks_what_prometheus_understands(promtool: Path, tmp_path: Path) -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) >= len(dashboard["panels"])
    filled = [expr.replace("$pipeline", ".*").replace("$__rate_interval", "5m") for expr in asked]
    rules = [{"record": f"asked_{number}", "expr": expr} for number, expr in enumerate(filled)]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    assert f"{len(rules)} rules found" in checked(promtool, "check", "rules", path)
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text(encoding="utf-8")))
    assert used <= variables | {"__rate_interval", "__all"}


def test_rules_dashboard_and_documentation_name_what_is_measured() -> None:
    runbook = (PROJECT / "docs/runbook.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", runbook, re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    for path in (ALERTS, DASHBOARD):
        text = path.read_text(encoding="utf-8")
        named = set(re.findall(r"\btally_(\w+)", text))
        assert named
        assert named <= set(METRICS)
        assert set(re.findall(r"docs/runbook\.md#([\w-]+)", text)) <= anchors
    text = (PROJECT / "docs" / "airflow.md").read_text(encoding="utf-8")
    for metric, meaning in METRICS.items():
        assert f"| `tally_{metric}` | {meaning} |" in text
