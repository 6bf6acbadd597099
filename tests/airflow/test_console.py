"""The console's answers: who gets them, and that they are what the ledger says."""

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urljoin, urlsplit

import pytest

from tests.airflow.conftest import log_in
from tests.airflow.dag_run import RunDag
from tests.world import World, make_settings

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

pytestmark = [
    pytest.mark.airflow,
    # Airflow's API server imports svcs, which imports Starlette's test client in any case.
    pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`"),
]

LINE = "2017-07-30 14:09:08 INFO all is well"


def command(world: World, *words: str) -> "subprocess.CompletedProcess[str]":
    """Call ``tally`` where Airflow is configured as it is here."""
    return subprocess.run(
        [Path(sys.executable).with_name("tally"), "--config", str(world.config), *words],
        capture_output=True,
        text=True,
        check=False,
    )


HOSTILE = (
    "<script>fetch('/x')</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }} ${7*7} <!--",
    "</td></tr></table><form action=//evil.example>",
    '=HYPERLINK("http://evil.example")',
)
"""Log lines whose writers hope for a page that takes them for markup, or for a formula."""

OF_A_PIPELINE = (
    "",
    "kafka",
    "partitions",
    "strips",
    "batches",
    "dead-letters",
    "replay",
    "losses",
    "audit",
)


def routes(client: "TestClient") -> list[tuple[str, frozenset[str]]]:
    """The console's own routes and their methods, those of its files left out."""
    from starlette.routing import Mount

    (mounted,) = [route for route in client.app.routes if getattr(route, "path", "") == "/tally"]  # type: ignore[attr-defined]
    console = mounted.app._app
    return [
        (route.path, frozenset(route.methods))
        for route in console.routes
        if not isinstance(route, Mount)
    ]


def addressed(path: str, name: str) -> str:
    """The address of a route, for a pipeline."""
    filled = path.replace("{dag_id}", name).replace("{batch_id}", "1")
    query = f"?dag_id={name}&run_id=r" if path == "/run" else ""
    return f"/tally{filled}{query}"


@pytest.mark.usefixtures("config")
def test_the_plugin_loads(client: "TestClient") -> None:
    """Airflow skips a plugin that it does not like with no more than a line in the log."""
    from airflow import plugins_manager

    plugins, errors = plugins_manager._get_plugins()
    assert errors == {}
    assert "tally" in {plugin.name for plugin in plugins}
    views, _ = plugins_manager._get_ui_plugins()
    found = {view["destination"]: view["href"] for view in views if view["name"] == "Tally"}
    # Relative: resolved against Airflow's own base address, which may have a path.
    assert found == {"nav": "tally/", "dag_run": "tally/run?dag_id={DAG_ID}&run_id={RUN_ID}"}


@pytest.mark.usefixtures("config", "metrics_token")
@pytest.mark.parametrize("credentials", [{}, {"Authorization": "Bearer forged"}])
def test_strangers_get_no_page(credentials: dict[str, str], client: "TestClient") -> None:
    """Each route but that of the files asks who it is; a new one is in the list by itself."""
    assert len(routes(client)) >= len(OF_A_PIPELINE)
    for path, _ in routes(client):
        answer = client.get(addressed(path, "error_log"), headers=credentials)
        assert answer.status_code in {401, 403}, path
        assert "error_log" not in answer.text


@pytest.mark.usefixtures("config", "metrics_token")
def test_a_user_without_the_right_to_the_dag_gets_no_page(client: "TestClient") -> None:
    """Being signed in is not enough."""
    log_in(client, role=None)
    for path, _ in routes(client):
        answer = client.get(addressed(path, "error_log"))
        assert answer.status_code == (401 if path == "/metrics" else 403), path


@pytest.mark.usefixtures("config")
def test_no_route_changes_anything(client: "TestClient") -> None:
    """What changes something is a run of a DAG, which Airflow's own API is asked for."""
    assert {method for _, methods in routes(client) for method in methods} <= {"GET", "HEAD"}


@pytest.mark.usefixtures("config")
def test_the_console_describes_nothing_to_strangers(client: "TestClient") -> None:
    """No API description; the files are what every browser may have."""
    for path in ("docs", "redoc", "openapi.json"):
        assert client.get(f"/tally/{path}").status_code == 404
    for name, kind in (("console.css", "text/css"), ("console.js", "text/javascript")):
        answer = client.get(f"/tally/static/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
    assert client.get("/tally/static/../app.py").status_code == 404
    assert client.get("/tally/static/%2e%2e/app.py").status_code == 404


@pytest.mark.stack
def test_each_page_is_drawn_of_an_empty_ledger(world: World, viewer: "TestClient") -> None:
    """Before the first plan there is nothing to show, and each page says so."""
    answer = viewer.get("/tally/")
    assert (answer.status_code, answer.headers["location"]) == (307, f"pipelines/{world.name}/")
    for path in OF_A_PIPELINE:
        answer = viewer.get(f"/tally/pipelines/{world.name}/{path}")
        assert answer.status_code == 200, (path, answer.text)
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.stack
def test_the_overview_shows_what_the_ledger_says(world: World, viewer: "TestClient") -> None:
    """The open batch, open losses with the way to their decision, health in words."""
    world.produce([LINE] * 3, 0)
    batch = world.plan().batch
    assert batch is not None
    world.execute(
        "insert into lost_range (incarnation_id, partition_id, from_offset, until_offset,"
        " detected_at) select incarnation_id, 1, 7, 9, now() from topic_incarnation"
        " where pipeline = %s",
        (world.name,),
    )
    text = viewer.get(f"/tally/pipelines/{world.name}/").text
    assert f"{world.topic}/1 [7, 9) was lost" in text
    assert f'<a class="button" href="../../pipelines/{world.name}/losses">Decide</a>' in text
    assert '<span class="badge fail">fail</span>' in text
    assert f'<a href="batches/{batch.batch_id}">{batch.batch_id}</a>' in text
    losses = viewer.get(f"/tally/pipelines/{world.name}/losses").text
    assert f'<td class="">{world.topic}/1</td>' in losses
    assert "You may look, but not start" in losses  # a viewer
    asked = viewer.get(f"/tally/pipelines/{world.name}/kafka").text
    assert "3</strong> records" in asked
    strips = viewer.get(f"/tally/pipelines/{world.name}/strips").text
    assert f"{world.topic}/0: planned 0 to 3" in strips


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_what_was_replaced_is_marked(world: World, run_dag: RunDag, viewer: "TestClient") -> None:
    """In the list of batches, on the page of each, and in the chart."""
    world.produce(["2017-07-30 14:09:08 ERROR a line"] * 3, 0)
    run_dag(world.name)
    run_dag(f"{world.name}_replay", {"dry_run": False, "reason": "a test"})
    old, new = [batch["batch_id"] for batch in world.batches()]
    base = f"/tally/pipelines/{world.name}"
    found = {row["batch_id"]: row for row in exported(viewer, f"{base}/batches", "batches")}
    assert (found[old]["state"], found[new]["state"]) == ("committed, replaced", "committed")
    assert (found[old]["kind"], found[new]["kind"]) == ("ingest", "replay")
    (replaced,) = exported(viewer, f"{base}/batches/{old}", "ranges")
    assert replaced["superseded_by_batch"] == new
    assert f'<a href="{new}">{new}</a>' in viewer.get(f"{base}/batches/{old}").text
    (replacing,) = exported(viewer, f"{base}/batches/{new}", "ranges")
    assert replacing["replaces"] == str(old)
    only = viewer.get(f"{base}/batches?kind=replay").text
    assert f'batches/{new}"' in only
    assert f'batches/{old}"' not in only


def exported(client: "TestClient", address: str, table: str) -> list[dict[str, Any]]:
    """A table of a page as JSON; the CSV has the same."""
    sign = "&" if "?" in address else "?"
    told: list[dict[str, Any]] = client.get(f"{address}{sign}export={table}&as=json").json()
    answer = client.get(f"{address}{sign}export={table}&as=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in answer.headers["content-disposition"]
    assert len(list(csv.DictReader(io.StringIO(answer.text)))) == len(told)
    return told


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_a_chart_shows_marks_and_what_is_behind_a_minute(
    world: World, viewer: "TestClient"
) -> None:
    """Lines by minute; replayed ones and those under other rules; the segments behind one."""
    from tests.airflow.counted import commit_counts

    commit_counts(world, {"2017-07-30 14:09": 3, "2017-07-30 14:11": 2})
    base = f"/tally/pipelines/{world.name}"
    bars = exported(viewer, f"{base}/?span=1h", "minutes")
    assert [(bar["minute"], bar["lines"], bar["outdated"]) for bar in bars] == [
        ("2017-07-30T14:09:00", 3, False),
        ("2017-07-30T14:11:00", 2, False),
    ]
    text = viewer.get(f"{base}/").text
    assert 'aria-label="2017-07-30 14:09: 3 lines"' in text
    (part,) = exported(viewer, f"{base}/minute?at=2017-07-30T14:09", "segments")
    assert (part["lines"], part["partition"]) == (3, f"{world.topic}/0")
    assert exported(viewer, f"{base}/?first=2017-07-30T14:11&last=2017-07-30T14:12", "minutes") == [
        bars[1]
    ]
    world.execute(
        "update batch set format_fingerprint = 'another' where pipeline = %s", (world.name,)
    )
    outdated = viewer.get(f"{base}/").text
    assert "2 minutes of this span are counted under other rules" in outdated
    assert "first_minute=2017-07-30+14%3A09&amp;last_minute=2017-07-30+14%3A11" in outdated


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_each_export_that_a_page_offers_is_a_file(
    world: World, run_dag: RunDag, viewer: "TestClient"
) -> None:
    """Also of the parts that another page takes in, and of a run."""
    from tests.airflow.counted import commit_counts

    batch = commit_counts(world, {"2017-07-30 14:09": 3}, dead_letters=[b"x"])
    world.produce(["2017-07-30 14:09:08 ERROR a line"], 0)
    run = run_dag(world.name)
    base = f"/tally/pipelines/{world.name}"
    paths = [
        *(f"{base}/{path}" for path in OF_A_PIPELINE),
        f"{base}/minute?at=2017-07-30T14:09",
        f"{base}/batches/{batch}",
        f"/tally/run?dag_id={world.name}&run_id={quote(run.run_id)}",
    ]
    offered = {
        urljoin(path, unescape(link))
        for path in paths
        for link in re.findall(r'href="([^"]*export=[^"]*)"', viewer.get(path).text)
    }
    names = {parse_qs(urlsplit(link).query)["export"][0] for link in offered}
    assert {"batches", "minutes", "partitions", "dead_letters", "segments", "ranges"} <= names
    for link in offered:
        answer = viewer.get(link)
        assert answer.status_code == 200, link
        assert "attachment" in answer.headers["content-disposition"], link


@pytest.mark.stack
def test_a_longer_bar_leads_to_its_own_minutes(world: World, viewer: "TestClient") -> None:
    """To no more than it stands for; a time with seconds means its minute."""
    from tests.airflow.counted import commit_counts

    commit_counts(world, {"2017-07-30 14:09": 3, "2017-07-30 14:10": 2, "2017-07-30 23:00": 1})
    base = f"/tally/pipelines/{world.name}/"
    text = viewer.get(f"{base}?first=2017-07-30T14:05&last=2017-07-30T23:00").text
    assert '"?first=2017-07-30T14:05&amp;last=2017-07-30T14:09"' in text
    address = f"{base}?first=2017-07-30T14:09:30&last=2017-07-30T14:09:59"
    (bar,) = exported(viewer, address, "minutes")
    assert (bar["minute"], bar["lines"]) == ("2017-07-30T14:09:00", 3)


@pytest.mark.stack
@pytest.mark.parametrize("line", HOSTILE)
def test_a_log_line_is_no_markup(line: str, world: World, viewer: "TestClient") -> None:
    """On no page, and no formula to a spreadsheet; it can be read and searched all the same."""
    from tests.airflow.counted import commit_counts

    commit_counts(world, {}, dead_letters=[line.encode()])
    base = f"/tally/pipelines/{world.name}/dead-letters"
    for address in (base, f"{base}?partition={world.topic}/0&text={line[:4]}"):
        text = viewer.get(address, params=None).text
        assert line not in text or "<" not in line
        assert line in unescape(text)
    (row,) = exported(viewer, base, "dead_letters")
    assert row["value"] == line
    answer = viewer.get(f"{base}?export=dead_letters&as=csv").text
    (cells,) = csv.DictReader(io.StringIO(answer))
    assert cells["value"] == (f"'{line}" if line.startswith("=") else line)
    asked = viewer.get(base, params={"batch": "1", "text": line})
    assert line in unescape(asked.text)
    assert line not in asked.text or "<" not in line


@pytest.mark.stack
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("batches?state=open", "state = 'open' is not known"),
        ("batches?before=x", "before = 'x' is not a whole number"),
        ("dead-letters?text=x", "a text is looked for among the dead letters of a batch"),
        ("dead-letters?partition=x", "partition = 'x' is no partition"),
        ("dead-letters?partition=x/9", "has never read x/9"),
        ("dead-letters?partition=tópic/0", "is no partition"),
        ("dead-letters?reason=ü", "reason = 'ü' is not known"),
        ("replay?what=x", "what = 'x' is not known"),
        ("dead-letters?skip=99999", "only the first 10,000 dead letters"),
        ("?span=2h", "span = '2h' is not known"),
        ("?first=yesterday", "first = 'yesterday' is not a time"),
        ("?first=2026-01-01T00:00&last=2026-12-01T00:00", "a span of 334 days is longer"),
        ("?first=2026-01-02T00:00&last=2026-01-01T00:00", "before it begins"),
        ("minute", "at = '' is not a time"),
        ("minute?at=2026-01-02T00:00Z", "has a zone"),
        ("?last=9999-12-31T23:59", "is far away"),
        ("?first=0001-01-01T00:00", "is far away"),
        ("dead-letters?until=2026-01-02T00:00", "a span of time needs its beginning, too"),
        ("batches?export=letters", "this page has no table 'letters'"),
        ("batches?export=batches&as=xml", "as = 'xml' is not known"),
    ],
)
def test_an_address_that_is_wrong_says_how(
    path: str, said: str, world: World, viewer: "TestClient"
) -> None:
    """With the next step, and as a page."""
    answer = viewer.get(f"/tally/pipelines/{world.name}/{path}")
    assert answer.status_code == 400
    assert said in unescape(answer.text)
    assert "Next: " in answer.text
    assert ('<a class="button" href="?">' in answer.text) == ("?" in path)


@pytest.mark.stack
def test_a_line_dated_ahead_moves_no_chart(world: World, viewer: "TestClient") -> None:
    """A clock that is wrong, or somebody who forges one: the chart is of today, and says it."""
    from tests.airflow.counted import commit_counts

    page = f"/tally/pipelines/{world.name}/"
    commit_counts(world, {"9999-12-31 23:59": 1, "2999-01-01 00:00": 4})
    drawn = viewer.get(f"{page}?last=2999-01-01T00:00")
    assert drawn.status_code == 200
    assert 'aria-label="2999-01-01 00:00: 4 lines"' in drawn.text
    assert "The newest line is" not in drawn.text
    answer = viewer.get(page)
    assert answer.status_code == 200
    assert "The result has no line up to today" in answer.text
    assert "the last of them 9999-12-31 23:59" in answer.text
    assert "show them" not in answer.text
    commit_counts(world, {"2017-07-30 14:09": 3})
    world.execute(f"delete from `{world.name}` where log_time > '3000-01-01'")
    text = viewer.get(page).text
    assert 'aria-label="2017-07-30 14:09: 3 lines"' in text
    assert "The newest line is of 2017-07-30 14:09" in text
    assert '<a href="?last=2999-01-01T00:00">show them</a>' in text
    ahead = f"{page}?last=2999-01-01T00:00"
    assert "not shown here" not in viewer.get(ahead).text
    (bar,) = exported(viewer, ahead, "minutes")
    assert bar["lines"] == 4


@pytest.mark.stack
@pytest.mark.parametrize(
    ("rows_max", "said"),
    [
        (8_000, "under other rules. The newest line"),
        (2, "Marks are shown from {day} 14:12 on; choose a shorter span to see all of them"),
        (1, "This span has too many contributions to show marks; choose a shorter one"),
    ],
)
def test_a_chart_says_where_marks_were_looked_for(
    rows_max: int,
    said: str,
    world: World,
    viewer: "TestClient",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is not marked there is not known to be under today's rules; nor is their number."""
    from tests.airflow.counted import commit_counts

    day = f"{1990 + rows_max % 7}-07-30"  # of its own: pipelines share the table of contributions
    monkeypatch.setattr("tally.ledger.minutes.MARKED_ROWS_MAX", rows_max)
    commit_counts(world, {f"{day} 14:09": 3, f"{day} 14:11": 2, f"{day} 14:12": 2})
    world.execute(
        "update batch set format_fingerprint = 'another' where pipeline = %s", (world.name,)
    )
    text = viewer.get(f"/tally/pipelines/{world.name}/").text
    assert said.format(day=day) in text
    assert ("At least 1 minute" in text) == (rows_max == 2)
    assert ("3 minutes of this span" in text) == (rows_max == 8_000)


@pytest.mark.stack
def test_totals_by_reason_say_that_they_are_of_the_latest(
    world: World, viewer: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing bounds them; of a batch all are added up."""
    from tests.airflow.counted import commit_counts

    commit_counts(world, {}, dead_letters=[b"x"])
    batch = commit_counts(world, {}, dead_letters=[b"x"])
    page, said = f"/tally/pipelines/{world.name}/dead-letters", "These totals cover only the latest"
    assert said not in viewer.get(page).text
    monkeypatch.setattr("tally.ledger.dead_letters.TOTALS_MAX", 1)
    assert said in viewer.get(page).text
    assert said not in viewer.get(f"{page}?batch={batch}").text


@pytest.mark.stack
def test_more_losses_than_are_shown_are_not_decided_unseen(
    world: World, client: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The button is about those on the page, and says how many these are."""
    from tests.airflow.counted import commit_counts

    commit_counts(world, {"2017-07-30 14:09": 1})
    for number in range(2):
        world.execute(
            "insert into lost_range (incarnation_id, partition_id, from_offset, until_offset,"
            " detected_at) select incarnation_id, %s, 7, 9, now() from topic_incarnation"
            " where pipeline = %s",
            (number, world.name),
        )
    monkeypatch.setattr("tally.airflow.console.steering_pages.SHOWN_MAX", 1)
    log_in(client, role="op")
    text = unescape(client.get(f"/tally/pipelines/{world.name}/losses").text)
    assert "Accept 1 loss<" in text
    assert "This decides only the 1 loss shown" in text
    (seen,) = re.findall(r'data-seen="(\[.*?\])"', text)
    assert [one["range"] for one in json.loads(seen)] == [f"{world.topic}/0 [7, 9)"]


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_the_page_of_a_decision_says_what_was_decided(
    world: World, run_dag: RunDag, viewer: "TestClient"
) -> None:
    """Or why nothing was; and what was asked for, with the reason."""
    conf = {"decision": "accept", "seen": [{"lost_range_id": 1, "range": "a/0 [1, 2)"}]}
    run = run_dag(f"{world.name}_losses", {**conf, "reason": "the disk <died>"})
    assert run.state == "failed"
    params = {"dag_id": f"{world.name}_losses", "run_id": run.run_id}
    text = unescape(viewer.get("/tally/run", params=params).text)
    assert "Asked for: accept a/0 [1, 2), because “the disk <died>”." in text
    assert "are no longer as they were shown" in text
    assert "Next: trigger the DAG again" in text


@pytest.mark.stack
@pytest.mark.parametrize(
    ("config", "milliseconds"),
    [
        ({"message.timestamp.after.max.ms": str(2**63 - 1)}, 1_764_000_000_000_000),
        ({"retention.ms": str(2**63 - 1)}, None),
        ({"retention.ms": str(10_000 * 365 * 86_400_000)}, None),
    ],
    ids=["a time in microseconds", "for ever", "beyond the calendar"],
)
def test_times_that_no_calendar_has_end_no_page(
    config: dict[str, str],
    milliseconds: int | None,
    world: World,
    viewer: "TestClient",
    metrics_token: str,
) -> None:
    """Producers set the times of records, and operators how long they are kept, as they like."""
    topic = f"{world.topic}_odd"
    world.create_topic(1, topic, **config)
    world.configure(topics=[topic])
    producer = world.producer()
    stamped = {} if milliseconds is None else {"timestamp": milliseconds}
    producer.produce(topic, b"a line", partition=0, **stamped)
    assert producer.flush(60) == 0
    base = f"/tally/pipelines/{world.name}"
    for path in ("kafka", "strips"):
        answer = viewer.get(f"{base}/{path}")
        assert answer.status_code == 200, answer.text
    assert "expires in" not in answer.text
    scrape = viewer.get("/tally/metrics", headers={"Authorization": f"Bearer {metrics_token}"})
    assert scrape.status_code == 200
    assert f'tally_lag_offsets{{pipeline="{world.name}"}} 1.0' in scrape.text


@pytest.mark.stack
def test_a_topic_that_is_counted_no_more_is_not_taken_for_all(
    world: World, client: "TestClient"
) -> None:
    """Its strip leads to the form, which asks for it alone."""
    log_in(client, role="op")
    page = f"/tally/pipelines/{world.name}/replay"
    text = client.get(f"{page}?what=offsets&topic=an.old-one&partitions=0").text
    assert "<option selected>an.old-one</option>" in text
    assert "an.old-one" not in client.get(page).text


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_a_batch_says_what_is_no_longer_kept(
    world: World, run_dag: RunDag, viewer: "TestClient"
) -> None:
    """Dead letters of what was replaced, and all of what was pruned."""
    from tests.airflow.counted import commit_counts

    batch = commit_counts(world, {"2017-07-30 14:09": 3}, dead_letters=[b"x"])
    page = f"/tally/pipelines/{world.name}/batches/{batch}"
    assert "1 dead letters (<a " in viewer.get(page).text
    assert run_dag(f"{world.name}_replay", {"dry_run": False, "reason": "r"}).state == "success"
    assert "1 dead letters, deleted since its counts were replaced" in viewer.get(page).text
    world.execute(
        "delete d from dead_letter_total d join segment s using (segment_id) where s.batch_id = %s",
        (batch,),
    )
    world.execute("update batch set kind = 'fold' where batch_id = %s", (batch,))
    text = viewer.get(page).text
    assert "3 counted, 1 dead letters; of pruned segments" in text


@pytest.mark.stack
def test_a_replay_whose_changes_take_too_long_is_shown_without_them(world: World) -> None:
    """The server ends the query; the rest of the page is there."""
    from tally.airflow.console import steering_pages
    from tally.app.replays import ReplayOutcome, replay_outcome
    from tally.errors import StatementError
    from tally.pipeline.replay import request_replay
    from tally.pipeline.replay_plan import preview_replay
    from tally.planning.replay_request import BoundsAsked
    from tests.airflow.counted import commit_counts

    commit_counts(world, {"2017-07-30 14:09": 1})
    ctx = world.context()
    found = request_replay(ctx, preview_replay(ctx, world.name, BoundsAsked()), reason="r")

    def slow(ctx: Any, number: int, *, with_changes: bool) -> ReplayOutcome:
        if with_changes:
            raise StatementError("it took too long", next_step="ask for less")
        return replay_outcome(ctx, number, with_changes=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steering_pages, "find_xcom", lambda *_: found.replay_id)
        patch.setattr(steering_pages, "replay_outcome", slow)
        values = steering_pages.replay_run(ctx, world.name, "r", has_ended=True)
    assert values["slow"] is not None
    assert values["outcome"].replay_id == found.replay_id


@pytest.mark.stack
def test_a_replay_of_another_pipeline_is_not_shown(world: World, viewer: "TestClient") -> None:
    """Whatever a run has handed on, its page shows its own pipeline's replay alone."""
    from tally.airflow.console import steering_pages
    from tally.pipeline.replay import request_replay
    from tally.pipeline.replay_plan import preview_replay
    from tally.planning.replay_request import BoundsAsked
    from tests.airflow.counted import commit_counts

    commit_counts(world, {"2017-07-30 14:09": 1})
    ctx = world.context()
    found = request_replay(ctx, preview_replay(ctx, world.name, BoundsAsked()), reason="r")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steering_pages, "find_xcom", lambda *_: found.replay_id)
        run = steering_pages.replay_run
        ours = run(ctx, world.name, "r", has_ended=True)["outcome"]
        others = run(ctx, f"{world.name}_b", "r", has_ended=True)["outcome"]
    assert ours.replay_id == found.replay_id
    assert others is None


@pytest.mark.stack
def test_a_batch_of_another_pipeline_is_not_shown(world: World, viewer: "TestClient") -> None:
    """The right to one pipeline is none to another; what is not there is not found, either."""
    batch = world.plan().batch
    other = f"{world.name}_b"
    make_settings(world.stack, world.config, {world.name: world.keys, other: world.keys})
    number = batch.batch_id if batch else 1
    for name, batch_id in ((other, number), (world.name, 2**40)):
        answer = viewer.get(f"/tally/pipelines/{name}/batches/{batch_id}")
        assert answer.status_code == 404
        assert f"the ledger has no batch {batch_id}" in answer.text
    answer = viewer.get("/tally/pipelines/no_such/")
    assert answer.status_code == 404
    assert "there are" not in answer.text  # the list above has those that the user may read


@pytest.mark.stack
def test_a_pipeline_that_is_configured_wrong_is_among_the_others(
    world: World, viewer: "TestClient"
) -> None:
    """With its mistakes, beside the others, for whom it changes nothing."""
    wrong = {"topics": ["a-topic"], "level": "ERROR"}
    make_settings(world.stack, world.config, {world.name: world.keys, "a_wrong_one": wrong})
    for address in ("/tally/", "/tally/pipelines/a_wrong_one/"):
        answer = viewer.get(address)
        assert answer.status_code == 200, answer.text
        assert "pipelines.a_wrong_one.level" in answer.text
    assert f'href="pipelines/{world.name}/"' in viewer.get("/tally/").text


@pytest.mark.stack
@pytest.mark.usefixtures("config")
def test_page_check_and_doctor_say_that_a_dag_is_paused(world: World, viewer: "TestClient") -> None:
    """It is a warning; the page knows it from Airflow, a command with ``--check`` asks for it."""
    from airflow.models import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    world.plan()
    bundle = f"b_{world.name}"
    with create_session() as session:
        session.add(DagBundleModel(name=bundle))
        session.flush()
        session.add(DagModel(dag_id=world.name, bundle_name=bundle, is_paused=True, is_stale=False))
    said = f"the DAG {world.name} is paused in Airflow"
    page = f"/tally/pipelines/{world.name}/"
    assert said in viewer.get(page).text
    for words in (["status", world.name, "--check"], ["pipelines", "--check"], ["doctor"]):
        assert said in command(world, *words).stdout
    assert command(world, "status", world.name, "--check").returncode == 1
    assert said not in command(world, "status", world.name).stdout  # which does not ask Airflow
    with create_session() as session:
        session.query(DagModel).filter_by(dag_id=world.name).update({"is_paused": False})
    assert command(world, "pipelines", "--check").returncode == 0
    text = viewer.get(page).text
    assert "is paused in Airflow" not in text
    assert '<span class="badge ok">ok</span>' in text


@pytest.mark.stack
def test_a_pipeline_is_listed_only_for_those_who_may_read_its_dag(
    world: World, viewer: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console opens no way around Airflow's permissions."""
    from airflow.api_fastapi.app import get_auth_manager

    asked: list[str] = []
    mine = f"{world.name}_mine"
    make_settings(world.stack, world.config, {world.name: world.keys, mine: world.keys})

    def refuse(*, method: str, details: Any, user: Any, **_: Any) -> bool:
        asked.append(f"{user.get_name()} {method} {details.id}")
        return bool(details.id == mine)

    # Airflow's simple auth manager knows no rights to single DAGs; others do.
    monkeypatch.setattr(get_auth_manager(), "is_authorized_dag", refuse)
    answer = viewer.get("/tally/")
    assert answer.status_code == 307
    assert answer.headers["location"] == f"pipelines/{mine}/"
    assert f"ann GET {world.name}" in asked
    for path, _ in routes(viewer):
        if "{dag_id}" in path or path == "/run":
            assert viewer.get(addressed(path, world.name)).status_code == 403, path
            assert viewer.get(addressed(path, f"{mine}_audit")).status_code == 403, path
    text = viewer.get(f"/tally/pipelines/{mine}/audit").text
    assert "You may not see what the runs of" in text
    assert f"/{world.name}/" not in text


@pytest.mark.usefixtures("config")
def test_a_ledger_that_does_not_answer_is_said_without_a_password(
    viewer: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page comes with the error on it; it does not hang, and it names no secret."""
    monkeypatch.setenv("TALLY_MYSQL__PORT", "1")
    monkeypatch.setenv("TALLY_CONSOLE__USER", "reader")
    monkeypatch.setenv("TALLY_CONSOLE__PASSWORD", "s3cret")
    answer = viewer.get("/tally/pipelines/error_log/batches")
    assert answer.status_code == 503
    assert "[mysql-unavailable]" in answer.text
    assert "s3cret" not in answer.text


@pytest.mark.usefixtures("config")
def test_without_a_user_to_read_with_the_console_says_how_to_make_one(
    viewer: "TestClient",
) -> None:
    """The user of the commits is not taken in its place."""
    answer = viewer.get("/tally/pipelines/error_log/batches")
    assert answer.status_code == 503
    assert "the console has no user of MySQL to read with" in answer.text
    assert "docs/runbook.md" in answer.text


@pytest.mark.stack
def test_the_consoles_user_can_only_read(world: World) -> None:
    """Of the local stack; a query that takes too long is ended by the server."""
    import pymysql

    from tally.app.context import console_context
    from tally.errors import StatementError

    database = console_context(world.settings).database
    with pytest.raises(pymysql.err.MySQLError), database.transaction() as tx:
        tx._connection.cursor().execute("insert into pipeline (pipeline) values ('x')")
    short = database.adjusted(statement_timeout_s=1)
    with pytest.raises(StatementError, match="ask for less"), short.transaction() as tx:
        tx.rows("select count(*) from information_schema.columns a, information_schema.columns b")


@pytest.mark.stack
def test_pages_share_a_connection_that_answers(world: World) -> None:
    """It is taken again soon, not after a while, not with another password, nor when it is lost."""
    from tally.app.context import console_context
    from tally.mysql.pool import IDLE_MAX_S, ConnectionPool

    now = [0.0]
    pool = ConnectionPool(clock=lambda: now[0])
    database = console_context(world.settings, pool).database

    def connection_id() -> int:
        with database.transaction(read_only=True) as tx:
            return int((tx.row("select connection_id() as id") or {})["id"])

    first = connection_id()
    assert connection_id() == first
    with database.transaction(read_only=True):
        second = connection_id()  # while the first is in use
    assert second != first
    world.as_root(f"kill {first}", f"kill {second}")
    third = connection_id()
    assert third not in {first, second}
    now[0] += IDLE_MAX_S
    fourth = connection_id()
    assert fourth != third
    other = database.adjusted(statement_timeout_s=3)
    with other.transaction(read_only=True) as tx:
        assert (tx.row("select connection_id() as id") or {})["id"] != fourth


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_a_run_has_a_page(world: World, run_dag: RunDag, viewer: "TestClient") -> None:
    """The batches of a run that counts; the preview of a replay and what became of it."""
    world.produce(["2017-07-30 14:09:08 ERROR a line"] * 3)
    counted = run_dag(world.name)
    text = viewer.get("/tally/run", params={"dag_id": world.name, "run_id": counted.run_id}).text
    (batch,) = [row["batch_id"] for row in world.batches()]
    assert f'<a href="pipelines/{world.name}/batches/{batch}">{batch}</a>' in text
    replay = f"{world.name}_replay"
    dry = run_dag(replay, {"reason": "a test"})
    link = dry.xcom("preview", "_link_PreviewLink")
    assert link.startswith("/tally/run?")
    answer = viewer.get(link)
    assert answer.status_code == 200, answer.text
    assert f"<td>{world.topic}/0</td><td>[0, 3)</td>" in answer.text
    assert "Nothing was changed" in answer.text
    real = run_dag(replay, {"reason": "a test", "dry_run": False})
    text = viewer.get("/tally/run", params={"dag_id": replay, "run_id": real.run_id}).text
    assert "1 of 1 batches committed" in text
    assert viewer.get(f"{link}x").status_code == 404
    audit = run_dag(f"{world.name}_audit")
    world.execute("update batch set run_id = %s where pipeline = %s", (audit.run_id, world.name))
    params = {"dag_id": f"{world.name}_audit", "run_id": audit.run_id}
    text = viewer.get("/tally/run", params=params).text
    assert f"batches/{batch}" not in text  # which another DAG's run of the same id has counted
    log_in(viewer, role=None)
    assert viewer.get(link).status_code == 403


@pytest.mark.stack
def test_the_page_of_a_run_says_why_there_is_no_preview(
    world: World, run_dag: RunDag, viewer: "TestClient"
) -> None:
    """The sentence of the error with what to do next, not the way to a log."""
    run = run_dag(f"{world.name}_replay", {"reason": "a test", "what": "batch"})
    params = {"dag_id": f"{world.name}_replay", "run_id": run.run_id}
    answer = viewer.get("/tally/run", params=params)
    assert answer.status_code == 200, answer.text
    assert "batch_id is not given" in answer.text
    assert "Next: fill in the field batch_id" in answer.text
    assert "Requested" not in answer.text


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_an_audit_is_shown_with_its_violations(
    world: World, run_dag: RunDag, viewer: "TestClient"
) -> None:
    """Those of the latest one, each with its minute."""
    from tests.airflow.counted import commit_counts

    commit_counts(world, {"2017-07-30 14:09": 3})
    page = f"/tally/pipelines/{world.name}/audit"
    before = viewer.get(page).text
    assert "No audit has ended yet" in before
    assert '<td colspan="3">not known</td>' in before
    run_dag(f"{world.name}_audit")
    assert '<span class="badge ok">holds</span>' in viewer.get(page).text
    world.execute(f"update `{world.name}` set log_count = 4")
    run_dag(f"{world.name}_audit")
    text = viewer.get(page).text
    assert '<span class="badge fail">violated</span>' in text
    assert '<td class="">no</td>' in text
    (violation,) = exported(viewer, page, "violations")
    assert violation["check"] == "result"
    assert "2017-07-30 14:09" in violation["where"]
    assert violation["detail"] == "the table says 4, segments add up to 3"
    assert [row["holds"] for row in exported(viewer, page, "audits")] == [False, True]


def test_loading_the_plugin_imports_neither_the_console_nor_mysql(
    in_fresh_python: Callable[[str], str],
) -> None:
    """Every process of Airflow loads plugins; only the API server shows pages."""
    printed = in_fresh_python(
        """
import sys
from airflow import plugins_manager
plugins, errors = plugins_manager._get_plugins()
assert not errors, errors
assert "tally" in {plugin.name for plugin in plugins}
late = {"tally.airflow.console.app", "pymysql", "pyspark", "confluent_kafka"}
print(sorted(late & set(sys.modules)))
"""
    )
    assert printed.splitlines()[-1] == "[]"
