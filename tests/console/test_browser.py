"""A whole stack from its start to its end: the README's commands, the console, the demonstration.

The console is used in a browser, in the order of a day: what is seen, what is steered, by whom.
``make screenshots`` keeps the pictures in docs/images; a test run compares none.
"""

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from playwright.sync_api import Browser, Locator, Route, expect, sync_playwright

from tests.console.browser_window import (
    NARROW,
    PATIENCE_MS,
    TALL,
    WIDE,
    WIDEST,
    BrowserWindow,
    Theme,
    new_window,
    signed_in,
)
from tests.console.running_stack import (
    END,
    HOSTILE,
    OPERATOR,
    PIPELINE,
    START,
    TOPIC,
    VIEWER,
    RunningStack,
    line_of,
    readme,
    running_stack,
)
from tests.first_use.pages import execute
from tests.programs import TestPrograms
from tests.servers import PROJECT
from tests.waiting import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.airflow, pytest.mark.timeout(3600)]

PAGES = ("", "partitions", "batches", "batches/2", "dead-letters", "replay", "losses", "audit")
# Chromium in a container, and without asking its makers for anything.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
WARNINGS = re.compile(r"(?m)^.*WARNING.*$|^WARN .*$")

OpenWindow = Callable[..., BrowserWindow]
TakePicture = Callable[[BrowserWindow, str], object]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser."""
    programs = TestPrograms(PROJECT / ".tally" / "downloads")
    programs.install(print)
    program = programs.chromium
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program.path,
            env={**os.environ, **program.environment},
            args=FLAGS,
            timeout=PATIENCE_MS,
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """The servers with an hour of lines; shared by the tests, in the order of their file."""
    with running_stack(tmp_path_factory.mktemp("console") / "checkout") as found:
        yield found


@pytest.fixture(scope="module")
def states(chromium: Browser, running: RunningStack) -> dict[str, Any]:
    """What the browser keeps of each user who has signed in."""
    return {user: signed_in(chromium, running, user) for user in (OPERATOR, VIEWER)}


@pytest.fixture
def open_window(
    chromium: Browser, running: RunningStack, states: dict[str, Any]
) -> Iterator[OpenWindow]:
    """Opens windows; none of them may have seen an error."""
    opened = []

    def opens(
        user: str = OPERATOR, size: tuple[int, int] = WIDE, theme: Theme = "light"
    ) -> BrowserWindow:
        opened.append(new_window(chromium, running, states[user], size, theme))
        return opened[-1]

    yield opens
    for window in opened:
        window.page.context.close()
        assert window.unexpected == []


@pytest.fixture
def picture(tmp_path: Path) -> TakePicture:
    """Takes a picture for the documentation, and otherwise one to look at after a failure."""
    folder = Path(os.environ.get("KEEP_PICTURES_IN", tmp_path))
    return lambda window, name: window.page.screenshot(
        path=folder / f"console-{name}.png", animations="disabled", caret="hide"
    )


AS_MANY = r"^([\d,]+) lines found, \1 counted$"
ANSWERS = 20
"""Of a page that reads lines for a few seconds at most: the machine may be busy."""


def press_bar(window: BrowserWindow, number: int, bars: int = 60) -> None:
    """Click on a bar of the chart, somewhere in its height."""
    over = window.page.locator(".chart .u-over").first
    box = over.bounding_box()
    assert box is not None
    x = box["width"] * (number + 0.5) / bars
    over.hover(position={"x": x, "y": 20})
    window.click(over, position={"x": x, "y": 20})


def expect_all_lines(badge: Locator, show: Callable[[], None]) -> None:
    """Show lines until a page has read all of them: it ends its read after a few seconds."""
    for _ in range(ANSWERS):
        show()
        expect(badge).to_have_text(re.compile("lines found"))
        if re.search(AS_MANY, badge.inner_text()):
            return
    expect(badge).to_have_text(re.compile(AS_MANY), timeout=1)


def test_the_readmes_commands_work_in_a_fresh_checkout(running: RunningStack) -> None:
    """They start the servers, count a line and check everything; nothing warns."""
    password = running.stack.credentials().airflow_admin
    assert running.said.count("  user admin\n") == 2
    assert password not in running.said
    assert running.said.count("next:  echo") == 2
    assert running.said.count("kafka: topic alog created") == 1
    assert "2026-01-31 23:59      1" in running.said
    assert "0 failed, 0 to look at" in running.said
    assert WARNINGS.findall(running.said) == []


def test_the_overview_says_whether_the_numbers_can_be_trusted(
    running: RunningStack, open_window: OpenWindow, picture: TakePicture
) -> None:
    """Health in words, age, rate and lag; the chart, and what is behind a minute of it."""
    running.produce([line_of(running.first, "ERROR", n) for n in range(7)], 1)
    for theme in ("light", "dark"):
        window = open_window(theme=theme)
        page = window.open("")
        expect(page.locator("#health .badge")).to_have_text("ok")
        expect(page.locator("#ledger")).to_contain_text("records/s")
        expect(page.locator("#lag-now")).to_have_text("7 records")
        told = page.locator(".told")
        expect_all_lines(page.locator("#behind .badge").nth(1), partial(press_bar, window, 30))
        expect(told).to_contain_text(f"{running.first + timedelta(minutes=30):%Y-%m-%d %H:%M}: ")
        expect(page.locator("#behind .lines li").first).to_contain_text(f"{TOPIC}/")
        if theme == "dark":
            picture(window, "overview-dark")
    # With the keyboard alone.
    page.locator(".chart[tabindex]").focus()
    page.keyboard.press("ArrowRight")
    expect(told).to_contain_text(f"{running.first + timedelta(minutes=31):%H:%M}: ")
    page.keyboard.press("Enter")
    expect(page.locator("#behind h2")).to_contain_text(
        f"{running.first + timedelta(minutes=31):%H:%M}: "
    )
    narrow = open_window(size=NARROW)
    narrow.open("")
    picture(narrow, "overview-narrow")


def test_each_page_says_what_it_is_for(
    running: RunningStack, open_window: OpenWindow, picture: TakePicture
) -> None:
    """With lines that wait; at the end they are counted."""
    window = open_window()
    for partition, lines in ((1, 400), (3, 90)):
        minutes = [running.first + timedelta(minutes=n % 60) for n in range(lines)]
        running.produce([line_of(at, "ERROR", n) for n, at in enumerate(minutes)], partition)
    for path, name, said in (
        ("partitions", "partitions", "expires in"),
        ("batches", "batches", "committed"),
        ("batches/2", "batch", "until planned"),
        ("replay?what=batch&batch_id=2", "replay", "Reason, kept in the ledger"),
        ("audit", "audit", "holds"),
    ):
        window.open(path)
        expect(window.page.locator("main")).to_contain_text(said)
        picture(window, name)
    assert running.run(PIPELINE) == "success"


def test_a_hostile_line_is_text(open_window: OpenWindow, picture: TakePicture) -> None:
    """It is read as it was written, and does nothing; its exact bytes are there, too."""
    window = open_window()
    page = window.page
    table = page.locator("#table-dead_letters")
    for line in HOSTILE:
        for address in ("dead-letters", f"dead-letters?partition={TOPIC}/2&text={quote(line)}"):
            window.open(address)
            expect(table.get_by_text(line, exact=True)).to_be_visible()
            assert page.locator("main script, main img").count() == 0
            expect(page).to_have_title(f"Dead letters · {PIPELINE} · Tally")
    window.open("dead-letters")
    expect(page.locator("#table-reasons td.n")).to_have_text("4")
    picture(window, "dead-letters")


def test_what_kafka_says_stays_when_a_page_renews_itself(open_window: OpenWindow) -> None:
    """The rest of the page is of the ledger alone; columns of Kafka's do not go and come."""
    page = open_window().open("partitions")
    cell = "#table-partitions tbody tr:first-child td:nth-child(7)"
    expect(page.locator(cell)).not_to_be_empty()
    page.evaluate(
        "cell => new MutationObserver(() => {"
        " window.wentEmpty ||= document.querySelector(cell)?.textContent === ''; })"
        ".observe(document.body, {childList: true, subtree: true})",
        cell,
    )
    read_at = page.locator("#read-at").inner_text()
    page.wait_for_function(
        "before => document.getElementById('read-at').textContent !== before", arg=read_at
    )
    expect(page.locator(cell)).not_to_be_empty()
    assert not page.evaluate("window.wentEmpty")


def test_a_number_may_be_pasted_and_what_airflow_refuses_is_told(open_window: OpenWindow) -> None:
    """What is no number is never left out: a replay would be wider than was asked.

    The reason is told in words, beside the button, and the form keeps what was typed.
    """
    window = open_window()
    page = window.page

    def preview(what: str, **fields: str) -> None:
        window.open(f"replay?what={what}&reason=a+test")
        for name, text in fields.items():
            page.locator(f'input[name="{name}"]').fill(text)
        page.get_by_role("button", name="Preview").click()

    offsets = "offsets&topic=alog&partitions=0"
    preview(offsets, from_offset="1,234", until_offset="1,300")
    expect(page.locator("#run")).to_contain_text("from 1234 until 1300")
    preview(offsets, from_offset="0x10")
    expect(page.locator(".said")).to_contain_text("Airflow has refused it")
    expect(page.locator('input[name="from_offset"]')).to_have_value("0x10")
    preview("batch", batch_id="1,2")  # a list of numbers is none, either
    expect(page.locator(".said")).to_contain_text("Airflow has refused it")
    window.open("replay")
    page.locator('input[name="reason"]').fill("a test")
    page.context.clear_cookies()
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".said")).to_contain_text("sign in again")
    expect(page.locator('input[name="reason"]')).to_have_value("a test")
    window.refusals = True


def test_a_replay_takes_few_clicks_from_a_saved_rule_to_the_changed_chart(
    running: RunningStack, open_window: OpenWindow, picture: TakePicture
) -> None:
    """A level is added; the overview says what was counted without it, and replays it."""
    config = running.folder / "tally.toml"
    before = config.read_text(encoding="utf-8")
    config.write_text(before.replace('["ERROR"]', '["ERROR", "INFO"]'), encoding="utf-8")
    window = open_window()
    framed = window.open_from_airflow()
    lines = framed.locator("#chart figcaption")
    expect(lines).to_contain_text("lines, on the lines' clock")
    old = int(lines.inner_text().split()[0].replace(",", ""))
    expect(framed.locator("#outdated")).to_contain_text("under other rules than today's")
    expect(framed.locator("#outdated").get_by_role("link", name="Replay them")).to_be_visible()
    picture(window, "outdated")
    window.clicks = 0
    window.brush(framed.locator(".chart .u-over").first, 0.0, 1.0)
    window.click(framed.get_by_role("link", name="Replay these minutes"))
    expect(framed.locator('input[name="reason"]')).to_be_focused()
    window.page.keyboard.type("the level INFO is counted, too")
    window.click(framed.get_by_role("button", name="Preview"))
    expect(framed.get_by_text("Nothing was changed.")).to_be_visible()
    expect(framed.locator("main")).to_contain_text(f"{TOPIC}/3")
    picture(window, "preview")
    window.click(framed.get_by_role("button", name="Replay now"))
    expect(framed.get_by_text("1 of 1 batches committed")).to_be_visible(timeout=3 * PATIENCE_MS)
    expect(framed.locator("#run > .facts .badge")).to_have_text("success", timeout=3 * PATIENCE_MS)
    picture(window, "replayed")
    window.click(framed.get_by_role("link", name="Show these minutes"))
    expect(framed.locator(".legend")).to_contain_text("replayed")
    assert int(lines.inner_text().split()[0].replace(",", "")) > old * 2
    expect(framed.locator("#outdated")).to_be_hidden()
    picture(window, "changed")
    assert window.clicks <= 5


@pytest.mark.parametrize(
    ("size", "theme"),
    [(WIDE, "light"), (NARROW, "dark"), (WIDEST, "light")],
    ids=["wide", "narrow", "widest"],
)
def test_everybody_can_use_each_page(
    size: tuple[int, int], theme: Theme, running: RunningStack, open_window: OpenWindow
) -> None:
    """Axe finds nothing of weight, nothing is cut off, and every page is more than its frame.

    Also of a preview, of a replay with what it has changed, and of what is behind a bar.
    """
    dag = f"{PIPELINE}_replay"
    runs = running.airflow.ask("GET", f"/api/v2/dags/{dag}/dagRuns")["dag_runs"]
    tables = [f"run?{urlencode({'dag_id': dag, 'run_id': run['dag_run_id']})}" for run in runs]
    at = running.first + timedelta(minutes=30)
    tables.append(f"pipelines/{PIPELINE}/minute?at={at:%Y-%m-%dT%H:%M}")
    window = open_window(size=size, theme=theme)
    page = window.page
    wrong: dict[str, list[str]] = {}
    for address in [*(f"pipelines/{PIPELINE}/{path}" for path in PAGES), *tables]:
        window.open_address(address)
        expect(page.locator("main h1")).to_be_visible()
        if address in tables:
            expect(page.locator("main table").first).to_be_attached()
        wide = page.evaluate("document.documentElement.scrollWidth")
        cut_off = [f"{wide} pixels wide"] if wide > size[0] else []
        wrong |= {address: found} if (found := [*window.complaints(), *cut_off]) else {}
    assert wrong == {}
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(15, 18, 24)") == (theme == "dark")


def test_a_loss_is_decided_in_few_clicks(
    running: RunningStack, open_window: OpenWindow, picture: TakePicture
) -> None:
    """From Airflow's home: what is lost, what accepting means, a reason, done.

    Another loss that appears meanwhile is told, and leaves the reason and what is decided alone.
    """
    running.lose(3, 11)
    window = open_window()
    framed = window.open_from_airflow()
    expect(framed.locator("#health .badge")).to_have_text("fail")
    window.click(framed.locator("#health").get_by_role("link", name="Decide"))
    expect(framed.locator("main")).to_contain_text("they are never counted")
    reason = framed.locator('input[name="reason"]')
    expect(reason).to_be_focused()
    window.page.keyboard.type("they were of a test")
    window.page.keyboard.press("Enter")  # presses neither of two buttons
    expect(framed.locator(".said")).to_be_empty()
    picture(window, "losses")
    framed.locator("h1").click()  # the reason stays also when it is left
    running.lose(1, 7)
    expect(framed.locator("#refresh")).to_contain_text("A part that is in use has changed")
    expect(reason).to_have_value("they were of a test")
    window.click(framed.get_by_role("button", name="Accept 1 loss"))
    expect(framed.locator("#run")).to_contain_text("settle: success")
    expect(framed.locator("#run > .facts .badge")).to_have_text("success")
    assert window.clicks <= 4
    page = window.open("losses")
    expect(page.locator("#table-decided")).to_contain_text("they were of a test")
    expect(page.locator("#table-decided")).to_contain_text(OPERATOR)
    expect(page.locator("#table-open tbody tr")).to_have_count(1)
    expect(page.locator("#table-open")).to_contain_text(f"{TOPIC}/1")
    page.locator('input[name="reason"]').fill("the second")
    page.get_by_role("button", name="Accept 1 loss").click()
    expect(page.locator("#run > .facts .badge")).to_have_text("success")
    expect(page.locator("#run")).to_contain_text("accepted by")
    window.open("losses")
    expect(page.locator("main")).to_contain_text("No loss waits")


def test_the_tasks_metrics_and_traces_arrive_at_a_collector(running: RunningStack) -> None:
    """Where Airflow's own go: what the ledger says after a batch, an audit and what was counted.

    The partitions whose losses were decided are counted again.
    """
    running.collector.values.clear()
    lines = [line_of(running.first + timedelta(minutes=1), "ERROR", n) for n in range(5)]
    running.produce(lines, 0)
    assert running.run(PIPELINE) == "success"
    assert running.run(f"{PIPELINE}_audit") == "success"

    def value(name: str, **labels: str) -> float | None:
        return running.collector.value(f"airflow.tally.{name}", pipeline=PIPELINE, **labels)

    wait_until(lambda: value("audit_holds") == 1)
    wait_until(lambda: value("lag_offsets") == 5)  # as the plan has found it
    assert value("audit_violations") == 0
    wait_until(lambda: (value("records") or 0) >= 5)
    assert value("problem", reason="late") == 0
    assert value("problem", reason="paused") is None
    assert value("ledger_up") is None
    wait_until(lambda: (value("batch_step_ms", step="committed") or 0) > 0)

    # The batch's span is below that of the task, and has one for each of its steps.
    def spans(name: str) -> list[Span]:
        return [span for span in list(running.collector.spans.values()) if span.name == name]

    wait_until(lambda: len(spans("tally.batch")) > 0)
    *_, batch = spans("tally.batch")
    assert running.collector.spans[batch.parent_span_id].name == "worker.count"
    for step in ("claimed", "read", "committed"):
        (one,) = [s for s in spans(f"tally.{step}") if s.parent_span_id == batch.span_id]
        assert batch.start_time_unix_nano <= one.start_time_unix_nano <= one.end_time_unix_nano
    assert one.end_time_unix_nano == batch.end_time_unix_nano


def test_a_lost_answer_starts_no_second_run(running: RunningStack, open_window: OpenWindow) -> None:
    """Airflow has taken the request; whoever presses again is led to that run."""
    runs = f"/api/v2/dags/{PIPELINE}_replay/dagRuns"
    before = running.airflow.ask("GET", runs)["total_entries"]
    window = open_window()
    page = window.open("replay?what=batch&batch_id=1&reason=a+test")

    def lose_answer(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route(f"**{runs}", lose_answer, times=1)
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".said")).to_have_text("Airflow did not answer.")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#run")).to_contain_text("preview: ")
    assert running.airflow.ask("GET", runs)["total_entries"] == before + 1
    window.refusals = True  # the second request is a conflict
    window.problems = [p for p in window.problems if "net::ERR_FAILED" not in p]


def test_a_viewer_looks_and_starts_nothing(running: RunningStack, open_window: OpenWindow) -> None:
    """No button, and where a script asks all the same, Airflow refuses."""
    window = open_window(VIEWER)
    for path in PAGES:
        assert window.open(path).locator("form.steer").count() == 0
    page = window.open("replay")
    expect(page.locator("main")).to_contain_text("You may look, but not start")
    asked = f"{running.airflow.address}/api/v2/dags/{PIPELINE}_replay/dagRuns"
    refused = page.evaluate(
        "async url => (await fetch(url, {method: 'POST', headers: {'Content-Type':"
        " 'application/json'}, body: JSON.stringify({logical_date: null, conf: {}})})).status",
        asked,
    )
    assert refused == 403
    window.refusals = True


def test_a_paused_dag_is_unpaused_where_it_is_seen(
    running: RunningStack, open_window: OpenWindow
) -> None:
    """Its runs would wait without a word."""
    running.airflow.pause(PIPELINE)
    page = open_window().open("")
    expect(page.locator("#health")).to_contain_text("is paused in Airflow")
    page.locator("#health").get_by_role("button", name=f"Unpause {PIPELINE}").click()
    expect(page.locator("#health .badge")).to_have_text("ok")
    assert running.airflow.ask("GET", f"/api/v2/dags/{PIPELINE}")["is_paused"] is False


def test_tally_is_a_part_of_airflows_pages(running: RunningStack, open_window: OpenWindow) -> None:
    """A run has a tab of Tally's; what a page shows is in the address, which can be passed on."""
    runs = running.airflow.ask("GET", f"/api/v2/dags/{PIPELINE}/dagRuns")["dag_runs"]
    run_id = next(run["dag_run_id"] for run in runs if run["state"] == "success")
    window, other = open_window(), open_window(VIEWER)
    window.page.goto(f"{running.airflow.address}/dags/{PIPELINE}/runs/{run_id}")
    window.page.get_by_role("link", name="Tally").last.click()
    expect(window.framed.locator("#run")).to_contain_text("count: success")
    framed = window.open_from_airflow()
    framed.get_by_role("link", name="Batches").click()
    framed.locator('select[name="kind"]').select_option("replay")
    framed.get_by_role("button", name="Show").click()
    window.page.wait_for_url("**/*kind=replay*")  # Airflow takes it over when the frame has loaded
    other.page.goto(window.page.url)
    expect(other.framed.locator('select[name="kind"]')).to_have_value("replay")


CALM = 'topics = ["calm"]\nline_format = "fixed"\nlevels = ["ERROR"]'
ORDERS = 'topics = ["orders"]\nline_format = "fixed"\nlevels = ["ERROR"]'
WEB = """\
topics = ["web"]
line_format = "json"
levels = ["ERROR", "WARN"]
labels = ["service", "level"]
"""
SERVICES = {"checkout": 45, "cart": 25, "search": 15, "login": 8, "mail": 4, "geo": 3}
SPIKE = {40: 60, 41: 260, 42: 130}
"""Further lines of one service, by minute."""


def lines_of_web(first: datetime) -> Iterator[str]:
    """An hour of lines of some services, with a spike, and lines that are not understood."""
    choose = random.Random(7)
    for number in range(60):
        some = choose.choices([*SERVICES], [*SERVICES.values()], k=choose.randrange(25, 50))
        spike = ["checkout"] * SPIKE.get(number, 0)
        for at, service in enumerate([*some, *spike]):
            is_slow = at >= len(some)
            said = "payment gateway timed out after 3000 ms" if is_slow else f"answer {at} is late"
            level = "ERROR" if is_slow else choose.choice(["ERROR", "ERROR", "WARN", "INFO"])
            time = f"{first + timedelta(minutes=number):%Y-%m-%dT%H:%M}:{at % 60:02d}"
            yield json.dumps({"time": time, "level": level, "service": service, "message": said})
    for service in ("cart", "cart", "mail"):
        yield json.dumps(
            {"time": f"{first + timedelta(minutes=41):%Y-%m-%dT%H:%M}:07", "service": service}
        )


def test_among_twenty_pipelines_what_is_wrong_is_found_and_mended_in_few_clicks(
    running: RunningStack, open_window: OpenWindow, picture: TakePicture
) -> None:
    """The first row is what is blocked, the next one what is behind; each tells why."""
    calm = {f"shop_{number:02d}": CALM for number in range(1, 18)}
    running.add_pipelines({**calm, "orders": ORDERS, "web": WEB})
    running.produce([*lines_of_web(running.first)], 0, "web")
    running.tally(*(f"run --pipeline {name}" for name in (*calm, "orders", "web")))
    for name in (*calm, "orders", "web"):
        running.airflow.unpause(name)
    running.produce([line_of(running.first, "ERROR", n) for n in range(1800)], 0, "orders")
    running.lose(2, 5)
    window = open_window()
    page = window.open_address("")
    rows = page.locator("table.fleet tbody tr")
    expect(rows).to_have_count(20)
    expect(rows.nth(0)).to_contain_text("blocked")
    expect(rows.nth(1)).to_contain_text("1,800")
    picture(window, "pipelines")
    assert window.complaints() == []
    page.get_by_label("Find a pipeline").fill("shop_1")
    expect(page.locator("table.fleet tbody tr:visible")).to_have_count(8)
    page.get_by_label("Find a pipeline").fill("")
    window.click(rows.nth(1).get_by_role("link"))
    expect(page.locator("h1")).to_have_text("orders")
    expect(page.locator("#lag-now")).to_have_text("1,800 records")
    assert window.clicks == 1
    page.go_back()
    window.clicks = 0
    window.click(rows.nth(0).get_by_role("link"))
    expect(page.locator("#health .banner.fail")).to_contain_text("never counted")
    window.click(page.locator("#health .banner.fail").get_by_role("link", name="Decide"))
    expect(page.locator('input[name="reason"]')).to_be_focused()
    page.keyboard.type("they were of a test")
    window.click(page.get_by_role("button", name="Accept 1 loss"))
    expect(page.locator("#run > .facts .badge")).to_have_text("success")
    assert window.clicks == 3


def test_behind_a_spike_are_its_lines_and_the_dead_letters_of_its_minute(
    open_window: OpenWindow, picture: TakePicture
) -> None:
    """Two clicks from the list of all pipelines lead to its lines, two more to its dead letters."""
    for size, theme in ((WIDE, "light"), (WIDEST, "dark")):
        window = open_window(size=size, theme=theme)
        page = window.open_address("")
        window.click(page.get_by_role("link", name="web", exact=True))
        press_bar(window, 41)
        expect(page.locator("#behind h2")).to_contain_text("the median")
        assert window.clicks == 2
        expect_all_lines(page.locator("#behind .badge").nth(1), partial(press_bar, window, 41))
        expect(page.locator("#behind .lines li")).to_have_count(100)
        assert window.complaints() == []
    window.click(page.locator("#behind").get_by_role("link", name="checkout"))
    expect(page.locator("#behind .lines li").first).to_contain_text("checkout")
    window.click(page.locator("#behind").get_by_role("link", name="no-level: 3"))
    expect(page.locator("#table-kinds tbody tr")).to_have_count(2)
    expect(page.locator("#table-dead_letters tbody tr")).to_have_count(3)
    window = open_window(size=TALL)
    page = window.open_address("pipelines/web/?by=service")
    expect_all_lines(page.locator("#behind .badge").nth(1), partial(press_bar, window, 41))
    page.evaluate("window.scrollTo(0, 0)")
    picture(window, "overview")
    page.get_by_role("button", name="checkout").click()
    expect(page.get_by_role("button", name="checkout")).to_have_attribute("aria-pressed", "false")
    window.open_address("pipelines/web/partitions")
    latest = page.get_by_role("link", name="latest lines")
    expect_all_lines(page.locator("#minute-lines .badge"), latest.click)


def test_the_demonstration_counts_two_batches_and_stops_the_servers(running: RunningStack) -> None:
    """It takes over those that run; each minute is counted by the schedule of the real DAG."""
    (running.folder / "tally.toml").write_bytes((PROJECT / "tally.toml").read_bytes())
    (running.folder / "dags" / "tally_pipelines.py").touch()  # Airflow parses it without delay
    said = execute(["make demo ONCE=1"], running.folder, {})
    assert said.count("  user admin\n") == 1
    assert running.stack.credentials().airflow_admin not in said
    assert "the producer's own count: equal" in said
    assert WARNINGS.findall(said) == []
    path = readme()[readme().index(START) - 1]
    said = execute([path, f"{START} mysql", END, END], running.folder, {})
    assert "stopped: mysql" in said
    assert "nothing was running" in said
