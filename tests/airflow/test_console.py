"""The console's answers: who gets them, and that they are what the ledger says."""

import json
import re
import secrets
from datetime import date, timedelta
from functools import partial
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import pytest
from click.testing import CliRunner
from pymysql.err import MySQLError

from tally.cli import cli
from tally.context import console_context
from tally.errors import StatementError
from tally.mysql.connection import IDLE_MAX_S, ConnectionPool
from tally.mysql.transactions import Database
from tally.planning.blocks import BlockReason
from tally.replay.run import ReplayOutcome, replay_outcome
from tally.set_up.migrate import prepare
from tests.airflow.conftest import log_in
from tests.airflow.dag_run import AIRFLOW, RunDag
from tests.airflow.ledgers import count, lose
from tests.cli.test_decisions import create_again
from tests.minute.steps import follow_another
from tests.world import World, make_settings

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

pytestmark = [*AIRFLOW, pytest.mark.stack]

OF_A_PIPELINE = (
    *("", "kafka", "partitions", "strips", "batches", "dead-letters", "replay", "losses", "audit"),
)


def text_of(client: "TestClient", address: str, status: int = 200, **options: Any) -> str:
    """The text of an answer, which has this status."""
    answer = client.get(address, **options)
    assert answer.status_code == status, (address, answer.text)
    return str(answer.text)


class Pages:
    """The pages of the world's pipeline, in Ann's browser."""

    def __init__(self, world: World, client: "TestClient") -> None:
        self.base = f"/tally/pipelines/{world.name}/"
        self._client = client

    def shows(self, path: str, *parts: str) -> str:
        """A page, which has these parts."""
        text = text_of(self._client, self.base + path)
        assert [part for part in parts if part not in text] == []
        return text

    def of_run(self, dag_id: str, run_id: str) -> str:
        """The page of a run; it must be there."""
        query = urlencode({"dag_id": dag_id, "run_id": run_id})
        return text_of(self._client, f"/tally/run?{query}")

    def table(self, path: str, name: str) -> list[dict[str, Any]]:
        """A table of a page as JSON."""
        address = f"{self.base}{path}{'&' if '?' in path else '?'}export={name}&as=json"
        told: list[dict[str, Any]] = self._client.get(address).json()
        return told

    def bars(self, query: str = "") -> list[tuple[str, int, str]]:
        """First minute, lines and state of each bar that the chart draws."""
        drawn = self._client.get(f"{self.base}chart{query}").json()
        return [(bar["first_minute"], bar["lines"], bar["state"]) for bar in drawn["bars"]]


@pytest.fixture
def pages(world: World, viewer: "TestClient") -> Pages:
    return Pages(world, viewer)


def change_rules(world: World) -> None:
    """Have all that was counted so far be counted under other rules than today's."""
    world.execute(
        "update batch set format_fingerprint = 'another' where pipeline = %s", (world.name,)
    )


def routes(client: "TestClient") -> list[tuple[str, frozenset[str]]]:
    """The console's own routes and their methods, those of its files left out."""
    from starlette.routing import Mount

    (mounted,) = [route for route in client.app.routes if getattr(route, "path", "") == "/tally"]  # type: ignore[attr-defined]
    return [
        (route.path, frozenset(route.methods))
        for route in mounted.app._app.routes
        if not isinstance(route, Mount)
    ]


def addressed(path: str, name: str) -> str:
    filled = path.replace("{dag_id}", name).replace("{batch_id}", "1")
    query = f"?dag_id={name}&run_id=r" if path == "/run" else ""
    return f"/tally{filled}{query}"


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
    # What changes something is a run of a DAG, which Airflow's own API is asked for.
    assert {method for _, methods in routes(client) for method in methods} <= {"GET", "HEAD"}


@pytest.mark.usefixtures("metrics_token")
def test_strangers_get_the_files_alone(client: "TestClient") -> None:
    """Each route asks who it is, and for the right to the DAG; a new one is tested by itself."""
    paths = [path for path, _ in routes(client)]
    assert len(paths) >= len(OF_A_PIPELINE)
    for path in paths:
        for credentials in ({}, {"Authorization": "Bearer forged"}):
            answer = client.get(addressed(path, "error_log"), headers=credentials)
            assert answer.status_code in {401, 403}, path
            assert "error_log" not in answer.text
    outside = ("static/../app.py", "static/%2e%2e/app.py")
    for path in ("docs", "redoc", "openapi.json", *outside):  # no description of an API
        assert client.get(f"/tally/{path}").status_code == 404
    for name, kind in (("console.css", "text/css"), ("console.js", "text/javascript")):
        answer = client.get(f"/tally/static/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
    log_in(client, role=None)
    for path in paths:
        answer = client.get(addressed(path, "error_log"))
        assert answer.status_code == (401 if path == "/metrics" else 403), path


@pytest.mark.parametrize(
    ("path", "up"), [("", "../"), ("pipelines/error_log/batches?state=open", "../../../")]
)
def test_a_browser_that_is_signed_out_is_shown_where_to_sign_in(
    client: "TestClient", path: str, up: str
) -> None:
    """From there Airflow leads back to the page; in a frame, too."""
    page = {"headers": {"Accept": "text/html,*/*;q=0.8"}}
    answer = client.get(f"/tally/{path}", **page)
    assert (answer.status_code, answer.headers["cache-control"]) == (401, "no-store")
    (address,) = re.findall(r'href="([^"]*)" target="_top">Sign in<', answer.text)
    assert address.startswith(f"{up}api/v2/auth/login?next=http")
    there = client.get(urljoin(f"http://testserver/tally/{path}", unescape(address)))
    assert there.status_code == 307
    login = parse_qs(urlsplit(there.headers["location"]).query)
    assert login["next"] == [f"http://testserver/tally/{path}"]
    log_in(client, role=None)
    assert "No right to this page" in text_of(client, f"/tally/{path}", 403, **page)


def test_each_page_is_drawn_of_an_empty_ledger(world: World, client: "TestClient") -> None:
    log_in(client, "op")
    answer = client.get("/tally/")
    assert (answer.status_code, answer.headers["location"]) == (307, f"pipelines/{world.name}/")
    for path in OF_A_PIPELINE:
        answer = client.get(f"/tally/pipelines/{world.name}/{path}")
        assert answer.status_code == 200, (path, answer.text)
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
    # A topic that is counted no more is not taken for all: its strip leads to the form.
    form = Pages(world, client)
    asked = "replay?what=offsets&topic=an.old-one&partitions=0"
    form.shows(asked, "<option selected>an.old-one</option>")
    assert "an.old-one" not in form.shows("replay")


def test_the_overview_shows_what_the_ledger_says(world: World, pages: Pages) -> None:
    batch = world.planned(["a line"] * 3)
    lose(world, 1)
    pages.shows(
        "",
        f"{world.topic}/1 [7, 9) was lost",
        f'<a class="button primary" href="../../pipelines/{world.name}/losses">Decide</a>',
        '<span class="badge fail">fail</span>',
        f'<a href="batches/{batch.batch_id}">{batch.batch_id}</a>',
    )
    pages.shows("losses", f'<td class="">{world.topic}/1</td>', "You may look, but not start")
    pages.shows("kafka", ">3 <small>records</small>")
    pages.shows("strips", f"{world.topic}/0: planned 0 to 3")


def test_what_was_replaced_is_marked(world: World, pages: Pages) -> None:
    old = count(world, {"2017-07-30 14:09": 3}, dead_letters=["x"])
    assert "1 dead letters (<a " in pages.shows(f"batches/{old}")
    (new,) = world.ask_replay().batch_ids
    world.run(new)
    found = {row["batch_id"]: row for row in pages.table("batches", "batches")}
    assert (found[old]["state"], found[new]["state"]) == ("committed, replaced", "committed")
    assert (found[old]["kind"], found[new]["kind"]) == ("ingest", "replay")
    (replaced,) = pages.table(f"batches/{old}", "ranges")
    assert replaced["superseded_by_batch"] == new
    deleted = "1 dead letters, deleted since its counts were replaced"
    pages.shows(f"batches/{old}", f'<a href="{new}">{new}</a>', deleted)
    (replacing,) = pages.table(f"batches/{new}", "ranges")
    assert replacing["replaces"] == str(old)
    assert f'batches/{old}"' not in pages.shows("batches?kind=replay", f'batches/{new}"')
    world.execute(
        "delete d from dead_letter_total d join segment s using (segment_id) where s.batch_id = %s",
        (old,),
    )
    world.execute("update batch set kind = 'fold' where batch_id = %s", (old,))
    assert "3 counted, 1 dead letters; of pruned segments" in pages.shows(f"batches/{old}")


def test_a_chart_shows_marks_and_what_is_behind_a_minute(world: World, pages: Pages) -> None:
    count(world, {"2017-07-30 14:09": 3, "2017-07-30 14:11": 2})
    bars = pages.table("?span=1h", "minutes")
    found = [(bar["minute"], bar["lines"], bar["outdated"]) for bar in bars]
    assert found == [("2017-07-30T14:09:00", 3, False), ("2017-07-30T14:11:00", 2, False)]
    assert pages.bars() == [(minute, lines, "complete") for minute, lines, _ in found]
    (part,) = pages.table("minute?at=2017-07-30T14:09", "segments")
    assert (part["lines"], part["partition"]) == (3, f"{world.topic}/0")
    assert pages.table("?first=2017-07-30T14:11&last=2017-07-30T14:12", "minutes") == [bars[1]]
    long = "?first=2017-07-30T14:05&last=2017-07-30T23:00"
    assert pages.bars(long) == [
        ("2017-07-30T14:05:00", 3, "complete"),
        ("2017-07-30T14:10:00", 2, "complete"),
    ]
    assert pages.table("?first=2017-07-30T14:09:30&last=2017-07-30T14:09:59", "minutes") == bars[:1]
    change_rules(world)
    said = "2 minutes of this span are counted under other rules"
    pages.shows("", said, "first_minute=2017-07-30+14%3A09&amp;last_minute=2017-07-30+14%3A11")


def test_a_chart_says_where_marks_were_looked_for(
    world: World, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not marked there is not known to be under today's rules; nor is their number."""
    # Of its own: pipelines share the table of contributions.
    day = str(date(1971, 1, 1) + timedelta(days=secrets.randbelow(10_000)))
    count(world, {f"{day} 14:09": 3, f"{day} 14:11": 2, f"{day} 14:12": 2})
    change_rules(world)
    for rows_max, number, said in (
        (8_000, "3 minutes of this span", "under other rules"),
        (2, "At least 1 minute", f"Marks are shown from {day} 14:12 on; choose a shorter span"),
        (1, "", "This span has too many contributions to show marks; choose a shorter one"),
    ):
        monkeypatch.setattr("tally.ledger.series.MARKED_ROWS_MAX", rows_max)
        text = pages.shows("", said, number)
        assert ("At least 1 minute" in text) == (rows_max == 2)


def test_a_line_dated_ahead_moves_no_chart(world: World, pages: Pages) -> None:
    """A clock that is wrong, or somebody who forges one: the chart is of today, and says it."""
    count(world, {"9999-12-31 23:59": 1, "2999-01-01 00:00": 4})
    ahead = "?last=2999-01-01T00:00"
    assert pages.bars(ahead) == [("2999-01-01T00:00:00", 4, "open")]
    assert "The newest line is" not in pages.shows(ahead)
    last = "the last of them 9999-12-31 23:59"
    assert "show them" not in pages.shows("", "The result has no line up to today", last)
    count(world, {"2017-07-30 14:09": 3})
    world.execute(f"delete from `{world.name}` where log_time > '3000-01-01'")
    newest = "The newest line is of 2017-07-30 14:09"
    pages.shows("", newest, f'<a href="{ahead}">show them</a>')
    assert pages.bars()[0][:2] == ("2017-07-30T14:09:00", 3)
    assert "not shown here" not in pages.shows(ahead)
    assert [row["lines"] for row in pages.table(ahead, "minutes")] == [4]


def test_an_address_that_is_wrong_says_how(world: World, viewer: "TestClient") -> None:
    for path, said in (
        ("batches?state=open", "state = 'open' is not known"),
        ("batches?before=x", "before = 'x' is not a whole number"),
        ("dead-letters?partition=x", "partition = 'x' is no partition"),
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
        ("batches?export=letters", "this page has no table 'letters'"),
        ("batches?export=batches&as=xml", "as = 'xml' is not known"),
    ):
        answer = viewer.get(f"/tally/pipelines/{world.name}/{path}")
        assert answer.status_code == 400, path
        assert said in unescape(answer.text)
        assert "Next: " in answer.text
        assert ('<a class="button" href="?">' in answer.text) == ("?" in path)


def test_what_is_there_is_shown_as_a_part_where_it_is_too_much(
    world: World, client: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals by reason are of the latest dead letters; a decision is about the losses shown."""
    log_in(client, role="op")
    pages = Pages(world, client)
    count(world, {}, dead_letters=["x"])
    batch = count(world, {}, dead_letters=["x"])
    said = "These totals cover only the latest"
    assert said not in pages.shows("dead-letters")
    monkeypatch.setattr("tally.ledger.dead_letters.TOTALS_MAX", 1)
    pages.shows("dead-letters", said)
    assert said not in pages.shows(f"dead-letters?batch={batch}")  # of a batch all are added up

    lose(world, 0)
    lose(world, 1)
    monkeypatch.setattr("tally.airflow.console.steering_pages.SHOWN_MAX", 1)
    text = unescape(pages.shows("losses", "Accept 1 loss<", "This decides only the 1 loss shown"))
    (seen,) = re.findall(r'data-seen="(\[.*?\])"', text)
    assert [one["range"] for one in json.loads(seen)] == [f"{world.topic}/0 [7, 9)"]


def test_times_that_no_calendar_has_end_no_page(
    world: World, viewer: "TestClient", metrics_token: str
) -> None:
    """Producers set the times of records, and operators how long they are kept, as they like."""
    for number, (option, value, stamped) in enumerate(
        (
            ("message.timestamp.after.max.ms", 2**63 - 1, {"timestamp": 1_764 * 10**12}),
            ("retention.ms", 2**63 - 1, {}),
            ("retention.ms", 10_000 * 365 * 86_400_000, {}),
            ("cleanup.policy", "compact", {"key": b"k"}),  # which keeps it for ever
        )
    ):
        topic = f"{world.topic}_{number}"
        world.create_topic(1, topic, **{option: str(value)})
        world.configure(topics=[topic])
        world.produce(["a line"], topic=topic, fields=stamped)
        pages = Pages(world, viewer)
        assert "expires in" not in pages.shows("kafka") + pages.shows("strips")
        scrape = viewer.get("/tally/metrics", headers={"Authorization": f"Bearer {metrics_token}"})
        assert scrape.status_code == 200
        assert f'tally_lag_offsets{{pipeline="{world.name}"}} 1.0' in scrape.text


def test_a_runs_page_shows_its_own_replay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a run has handed on; without what the replay has changed, if that takes too long."""
    from tally.airflow.console import steering_pages  # warns when it is imported

    count(world, {"2017-07-30 14:09": 1})
    ctx, found = world.context(), world.ask_replay()

    def slow(ctx: Any, number: int, *, with_changes: bool) -> ReplayOutcome:
        if with_changes:
            raise StatementError("it took too long", next_step="ask for less")
        return replay_outcome(ctx, number, with_changes=False)

    def shown(pipeline: str) -> dict[str, Any]:
        return dict(steering_pages.replay_run(ctx, pipeline, "r", has_ended=True))

    monkeypatch.setattr(steering_pages, "find_xcom", lambda *_: found.replay_id)
    assert shown(world.name)["outcome"].replay_id == found.replay_id
    assert shown(f"{world.name}_b")["outcome"] is None
    monkeypatch.setattr(steering_pages, "replay_outcome", slow)
    assert shown(world.name)["slow"] is not None
    assert shown(world.name)["outcome"].replay_id == found.replay_id


def test_pipelines_are_told_apart(world: World, viewer: "TestClient") -> None:
    """The right to one is none to another; one with mistakes shows them, and changes no other."""
    batch, other = world.planned(["a line"]), f"{world.name}_b"
    wrong = {"a_wrong_one": {"topics": ["a-topic"], "level": "ERROR"}}
    both = {world.name: world.keys, other: world.keys}
    make_settings(world.stack, world.config, {**both, **wrong})
    for name, batch_id in ((other, batch.batch_id), (world.name, 2**40)):
        text = text_of(viewer, f"/tally/pipelines/{name}/batches/{batch_id}", 404)
        assert f"the ledger has no batch {batch_id}" in text
    # The list above has those that the user may read.
    assert "there are" not in text_of(viewer, "/tally/pipelines/no_such/", 404)
    for address in ("/tally/", "/tally/summaries", "/tally/pipelines/a_wrong_one/"):
        text = text_of(viewer, address)
        assert "pipelines.a_wrong_one.level" in text
        listed = f'<option value="{world.name}">' if "wrong" in address else f'/{world.name}/"'
        assert listed in text
    make_settings(world.stack, world.config, wrong)
    alone = text_of(viewer, "/tally/pipelines/a_wrong_one/")
    assert "pipelines.a_wrong_one.level" in alone
    assert "Read from the ledger" not in alone


def test_no_page_says_ok_until_kafka_has_answered(
    world: World, viewer: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was created again shows only there; where Kafka is down that is a failure."""
    count(world, {"2017-07-30 14:09": 3})
    other = f"{world.name}_b"
    make_settings(world.stack, world.config, {world.name: world.keys, other: world.keys})
    prepare(world.database, world.settings)
    badges = partial(re.findall, r'class="badge \w+">([a-z ]+)<')
    pages = ("/tally/", f"/tally/pipelines/{world.name}/")
    answers = ("/tally/summaries", f"/tally/pipelines/{world.name}/kafka")
    assert [badges(text_of(viewer, page)) for page in pages] == [["checking"] * 2, ["checking"]]
    assert [badges(text_of(viewer, page)) for page in answers] == [["ok"] * 2, ["ok"]]
    create_again(world, 5)
    assert [badges(text_of(viewer, page)) for page in pages] == [["checking"] * 2, ["checking"]]
    told = [text_of(viewer, page) for page in answers]
    assert [badges(text) for text in told] == [["blocked", "ok"], ["fail"]]
    assert ">5 <small>records</small>" in told[1]
    assert f'/pipelines/{world.name}/losses">Decide</a>' in told[1]
    decide = text_of(viewer, f"/tally/pipelines/{world.name}/decide")
    assert f"{world.topic} was created again" in decide
    monkeypatch.setenv("TALLY_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert badges(text_of(viewer, answers[0])) == ["no answer"] * 2


def test_a_topic_on_another_cluster_is_not_adopted_by_a_button(world: World, viewer: Any) -> None:
    """Its records may be copies: what would be counted twice is previewed on the command line."""
    world.produce(["2017-07-30 14:09:08 ERROR a"] * 3)
    world.minute(world.reader)
    page = f"/tally/pipelines/{world.name}/decide"
    kafka = world.context().kafka.snapshot([world.topic], read_committed=True)
    set_cluster = "update topic_incarnation set cluster_id = %s where pipeline = %s"
    world.execute(set_cluster, ("other", world.name))
    moved = unescape(text_of(viewer, page))
    assert f"{world.topic} is on another cluster" in moved
    assert f"tally topics adopt {world.name} {world.topic} --start 20" in moved
    assert ">Adopt " not in moved
    # A topic that was followed before goes on where it stopped.
    world.execute(set_cluster, (kafka.cluster_id, world.name))
    follow_another(world, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    resumed = unescape(text_of(viewer, page))
    assert f"{world.topic} is an earlier one again" in resumed
    assert "partition 0 from 3" in resumed


def test_pages_and_checks_tell_of_a_paused_dag(world: World, run_dag: RunDag, pages: Pages) -> None:
    """It is a warning; the page knows it from Airflow, a command with ``--check`` asks for it."""
    from airflow.models import DagModel
    from airflow.utils.session import create_session

    run_dag(world.name)  # so that Airflow knows it; at first it is paused
    said = f"the DAG {world.name} is paused in Airflow"
    assert said in pages.shows("")
    for words in (["status", world.name], ["pipelines"]):
        assert said not in CliRunner().invoke(cli, words).stdout  # it does not ask Airflow
        checked = CliRunner().invoke(cli, [*words, "--check"])
        assert (checked.exit_code, said in checked.stdout) == (1, True)
    with create_session() as session:
        session.query(DagModel).filter_by(dag_id=world.name).update({"is_paused": False})
    assert "is paused in Airflow" not in pages.shows("kafka", '<span class="badge ok">ok</span>')


def test_a_pipeline_is_listed_only_for_those_who_may_read_its_dag(
    world: World, viewer: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert (answer.status_code, answer.headers["location"]) == (307, f"pipelines/{mine}/")
    assert f"ann GET {world.name}" in asked
    for path, _ in routes(viewer):
        if "{dag_id}" in path or path == "/run":
            assert viewer.get(addressed(path, world.name)).status_code == 403, path
            assert viewer.get(addressed(path, f"{mine}_audit")).status_code == 403, path
    text = viewer.get(f"/tally/pipelines/{mine}/audit").text
    assert "You may not see what the runs of" in text
    assert f"/{world.name}/" not in text


def test_a_ledger_that_cannot_be_read_is_said_without_a_password(
    viewer: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page comes with the error on it; the user of the commits is not taken instead."""

    def refused() -> str:
        return text_of(viewer, "/tally/pipelines/error_log/batches", 503)

    assert "the console has no user of MySQL to read with" in refused()
    assert "docs/runbook.md" in refused()
    assert "Read from the ledger" not in refused()
    monkeypatch.setenv("TALLY_MYSQL__PORT", "1")
    monkeypatch.setenv("TALLY_CONSOLE__USER", "reader")
    monkeypatch.setenv("TALLY_CONSOLE__PASSWORD", "s3cret")
    assert "[mysql-unavailable]" in refused()
    assert "s3cret" not in refused()


def test_the_consoles_user_can_only_read(world: World) -> None:
    database = console_context(world.settings, ConnectionPool()).database
    with pytest.raises(MySQLError), database.transaction() as tx:
        tx._connection.cursor().execute("insert into pipeline (pipeline) values ('x')")
    short = database.adjusted(statement_timeout_s=1)
    with pytest.raises(StatementError, match="ask for less"), short.transaction() as tx:
        tx.rows("select count(*) from information_schema.columns a, information_schema.columns b")


def test_pages_share_a_connection_that_answers(world: World) -> None:
    now = [0.0]
    pool = ConnectionPool(clock=lambda: now[0])
    database = console_context(world.settings, pool).database

    def connection_id(database: Database = database) -> int:
        with database.transaction(read_only=True) as tx:
            return int((tx.row("select connection_id() as id") or {})["id"])

    first = connection_id()
    assert connection_id() == first
    with database.transaction(read_only=True):
        second = connection_id()  # while the first is in use
    world.as_root(f"kill {first}", f"kill {second}")
    third = connection_id()
    now[0] += IDLE_MAX_S
    fourth = connection_id()
    fifth = connection_id(database.adjusted(statement_timeout_s=3))
    assert len({first, second, third, fourth, fifth}) == 5


@pytest.mark.usefixtures("stand_in")
def test_runs_have_pages(world: World, run_dag: RunDag, viewer: "TestClient", pages: Pages) -> None:
    world.produce(["2017-07-30 14:09:08 ERROR a line"] * 3)
    counted = run_dag(world.name)
    (batch,) = [row["batch_id"] for row in world.batches()]
    text = pages.of_run(world.name, counted.run_id)
    assert f'<a href="pipelines/{world.name}/batches/{batch}">{batch}</a>' in text
    replay = f"{world.name}_replay"
    dry = run_dag(replay, {"reason": "a test"})
    link = dry.xcom("preview", "_link_PreviewLink")
    assert link.startswith("/tally/run?")
    text = text_of(viewer, link)
    assert f"<td>{world.topic}/0</td><td>[0, 3)</td>" in text
    assert "Nothing was changed" in text
    real = run_dag(replay, {"reason": "a test", "dry_run": False})
    assert "1 of 1 batches committed" in pages.of_run(replay, real.run_id)
    assert viewer.get(f"{link}x").status_code == 404
    # Each export that a page offers is a file, also of the parts that another page takes in.
    count(world, {"2017-07-30 14:09": 3}, dead_letters=["x"])
    paths = (*OF_A_PIPELINE, "minute?at=2017-07-30T14:09", f"batches/{batch}")
    offered = {
        urljoin(path, unescape(export))
        for path in (*(f"{pages.base}{path}" for path in paths), link)
        for export in re.findall(r'href="([^"]*export=[^"]*)"', viewer.get(path).text)
    }
    names = {parse_qs(urlsplit(export).query)["export"][0] for export in offered}
    assert {"batches", "minutes", "partitions", "dead_letters", "segments", "ranges"} <= names
    for export in offered:
        answer = viewer.get(export)
        assert answer.status_code == 200, export
        assert "attachment" in answer.headers["content-disposition"], export
        is_csv = "as=csv" in export
        assert (answer.headers["content-type"] == "text/csv; charset=utf-8") == is_csv, export
    log_in(viewer, role=None)
    assert viewer.get(link).status_code == 403


def test_a_runs_page_says_why_nothing_was_done(world: World, run_dag: RunDag, pages: Pages) -> None:
    dag_id = f"{world.name}_replay"
    text = pages.of_run(dag_id, run_dag(dag_id, {"reason": "a test", "what": "batch"}).run_id)
    assert "batch_id is not given" in text
    assert "Next: fill in the field batch_id" in text
    assert "Requested" not in text
    dag_id = f"{world.name}_losses"
    conf = {"decision": "accept", "seen": [{"lost_range_id": 1, "range": "a/0 [1, 2)"}]}
    run = run_dag(dag_id, {**conf, "reason": "the disk <died>"})
    assert run.state == "failed"
    text = unescape(pages.of_run(dag_id, run.run_id))
    assert "Asked for: accept a/0 [1, 2), because “the disk <died>”." in text
    assert "are no longer as they were shown" in text
    assert "Next: trigger the DAG again" in text


def test_an_audit_is_shown_with_its_violations(world: World, run_dag: RunDag, pages: Pages) -> None:
    batch = count(world, {"2017-07-30 14:09": 3})
    pages.shows(
        "audit",
        "No audit of the DAG",
        "by command line are not shown",
        '<td colspan="3">not known</td>',
    )
    audit = run_dag(f"{world.name}_audit")
    pages.shows("audit", '<span class="badge ok">holds</span>')
    world.execute("update batch set run_id = %s where pipeline = %s", (audit.run_id, world.name))
    # Another DAG's run of the same id has counted it.
    assert f"batches/{batch}" not in pages.of_run(f"{world.name}_audit", audit.run_id)
    world.execute(f"update `{world.name}` set log_count = 4")
    run_dag(f"{world.name}_audit")
    pages.shows("audit", '<span class="badge fail">violated</span>', '<td class="">no</td>')
    (violation,) = pages.table("audit", "violations")
    assert violation["check"] == "result"
    assert "2017-07-30 14:09" in violation["where"]
    assert violation["detail"] == "the table says 4, segments add up to 3"
    assert [row["holds"] for row in pages.table("audit", "audits")] == [False, True]


def audit_log(dag_id: str) -> list[tuple[str, str | None, str]]:
    """Event, user and page of Airflow's entries about a DAG."""
    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        entries = session.scalars(select(Log).where(Log.dag_id == dag_id).order_by(Log.id))
        return [(e.event, e.owner, json.loads(e.extra)["page"]) for e in entries]


def test_lines_are_for_those_who_have_a_right_to_them(
    world: World, viewer: "TestClient", client: "TestClient", tmp_path: Path
) -> None:
    """Who may only view sees counts, and no bytes of a record."""
    count(world, {"2017-07-30 14:09": 3}, dead_letters=["secret"])
    base = f"/tally/pipelines/{world.name}/"
    paths = ("lines?at=2017-07-30T14:09", f"record?partition={world.topic}/0&offset=0")
    for path in paths:
        text = text_of(viewer, base + path, 403)
        assert "You may see counts, but not the lines" in text
    assert "data-src" not in text_of(viewer, f"{base}minute?at=2017-07-30T14:09")
    log_in(client, role="op")
    line = '<span class="raw">2017-07-30 14:09:00 ERROR a line</span>'
    text = text_of(client, base + paths[0])
    assert (text.count(line), "3 lines found, 3 counted" in text) == (3, True)
    assert "2017-07-30 14:09:00 ERROR a line</p>" in text_of(client, base + paths[1])
    # Airflow's audit log has who was shown them, and nothing of who was refused.
    assert audit_log(world.name) == [
        ("tally_lines_shown", "ann", "lines"),
        ("tally_lines_shown", "ann", "record"),
    ]
    none = f"record?partition={world.topic}/0&offset=9"
    assert "Kafka has no record at" in text_of(client, base + none)
    # The right to one pipeline shows no record of another's topic.
    (folder := tmp_path / "other").mkdir()
    other = World.create(world.stack, folder)
    other.produce(["secret"])
    text = text_of(client, f"{base}record?partition={other.topic}/0&offset=0", 400)
    assert "has never read" in text


@pytest.mark.parametrize("as_file", ["", "&export=dead_letters&as=json", "&export=kinds&as=csv"])
def test_dead_letters_have_no_bytes_for_those_who_only_view(
    world: World, viewer: "TestClient", client: "TestClient", as_file: str
) -> None:
    """Nor can they be guessed by looking for a text."""
    count(world, {"2017-07-30 14:09": 3}, dead_letters=["secret"])
    page = f"/tally/pipelines/{world.name}/dead-letters?partition={world.topic}/0{as_file}"
    text = text_of(viewer, page)
    assert "no-time" in text
    assert "secret" not in text
    assert "c2VjcmV0" not in text
    assert "you may not search the lines" in text_of(viewer, f"{page}&text=secret", 400)
    log_in(client, role="op")
    assert "secret" in text_of(client, page)


def test_the_runbook_is_beside_what_is_wrong(world: World, pages: Pages) -> None:
    """Each reason for which something is not read has its entry."""
    world.planned(["a line"])
    lose(world, 1)
    pages.shows("", 'runbook?entry=partitions-blocked">Runbook</a>')
    for entry in (*BlockReason, "partitions-blocked", "kafka-unavailable"):
        text = text_of(pages._client, f"/tally/runbook?entry={entry}")
        assert re.search(r'card raw">[^<]{80}', text), entry
    assert "has no entry" in text_of(pages._client, "/tally/runbook?entry=x", 400)
    assert "has no entry" in text_of(pages._client, "/tally/runbook?entry=.*", 400)
