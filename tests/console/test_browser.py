"""The console in a browser, in the order of a day: what is seen, what is steered, by whom.

``make screenshots`` keeps the pictures in docs/images; a test run compares none.
"""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.console.browser_window import (
    NARROW,
    PATIENCE_MS,
    WIDE,
    BrowserWindow,
    Theme,
    new_window,
    signed_in,
)
from tests.console.collector import Collector
from tests.console.running_stack import (
    HOSTILE,
    OPERATOR,
    PIPELINE,
    TOPIC,
    VIEWER,
    RunningStack,
    line_of,
)
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.airflow,
    pytest.mark.timeout(3600),
]

PAGES = ("", "partitions", "batches", "batches/1", "dead-letters", "replay", "losses", "audit")
PICTURES = os.environ.get("KEEP_PICTURES_IN")

REPLAY_CLICKS = 6
LOSS_CLICKS = 4

OpenWindow = Callable[..., BrowserWindow]


@pytest.fixture(scope="module")
def states(chromium: Browser, running: RunningStack) -> dict[str, Any]:
    """What the browser keeps of each user who has signed in."""
    return {user: signed_in(chromium, running, user) for user in ("admin", OPERATOR, VIEWER)}


@pytest.fixture
def open_window(
    chromium: Browser, running: RunningStack, states: dict[str, Any]
) -> Iterator[OpenWindow]:
    """Opens windows; none of them may have seen an error."""
    opened = []

    def opens(
        user: str = OPERATOR, size: tuple[int, int] = WIDE, theme: Theme = "light"
    ) -> BrowserWindow:
        context, window = new_window(chromium, running, states[user], size, theme)
        opened.append((context, window))
        return window

    yield opens
    for context, window in opened:
        context.close()
        assert window.unexpected == []


@pytest.fixture
def picture(tmp_path: Path) -> Callable[[BrowserWindow, str], None]:
    """Takes a picture for the documentation, and otherwise one to look at after a failure."""
    folder = Path(PICTURES) if PICTURES else tmp_path
    return lambda window, name: window.picture(folder / f"console-{name}.png")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_everybody_can_use_each_page(
    size: tuple[int, int], theme: Theme, open_window: OpenWindow
) -> None:
    """Axe finds nothing of weight, nothing is cut off, and every page is more than its frame."""
    window = open_window(size=size, theme=theme)
    wrong: dict[str, list[str]] = {}
    for path in PAGES:
        window.open(path)
        expect(window.page.locator("main h1")).to_be_visible()
        wide = window.page.evaluate("document.documentElement.scrollWidth")
        cut_off = [f"{wide} pixels wide"] if wide > size[0] else []
        wrong |= {path: found} if (found := [*window.complaints(), *cut_off]) else {}
    assert wrong == {}
    dark = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(17, 20, 24)") == (theme == "dark")


def test_the_overview_says_whether_the_numbers_can_be_trusted(
    running: RunningStack, open_window: OpenWindow, picture: Callable[[BrowserWindow, str], None]
) -> None:
    """Health in words, age, rate and lag; the chart, and what is behind a minute of it."""
    running.produce([line_of(running.first, "ERROR", n) for n in range(7)], 1)
    for theme in ("light", "dark"):
        window = open_window(theme=theme)
        window.open("")
        page = window.page
        expect(page.locator("#health .badge")).to_have_text("ok")
        expect(page.locator("#health")).to_contain_text("records/s")
        expect(page.locator("#kafka")).to_contain_text("Lag 7 records")
        bars = page.locator(".chart a")
        expect(bars).to_have_count(60)
        bars.nth(30).hover()
        expect(page.locator("#behind")).to_contain_text("Segments with lines of this minute")
        expect(page.locator("#behind")).to_contain_text(f"{TOPIC}/0")
        page.mouse.move(0, 0)
        picture(window, "overview" if theme == "light" else "overview-dark")
    # With the keyboard alone.
    bars.nth(0).focus()
    page.keyboard.press("ArrowRight")
    expect(bars.nth(1)).to_be_focused()
    narrow = open_window(size=NARROW)
    narrow.open("")
    picture(narrow, "overview-narrow")
    assert running.run(PIPELINE) == "success"


def test_each_page_has_its_picture(
    running: RunningStack, open_window: OpenWindow, picture: Callable[[BrowserWindow, str], None]
) -> None:
    """With what it is for on it."""
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


def test_a_hostile_line_is_text(
    open_window: OpenWindow, picture: Callable[[BrowserWindow, str], None]
) -> None:
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
    window = open_window()
    window.open("partitions")
    page = window.page
    ends = page.locator("#table-partitions tbody tr:first-child td:nth-child(7)")
    expect(ends).not_to_be_empty()
    page.evaluate(
        "() => { window.wentEmpty = false; new MutationObserver(() => { const cell = "
        "document.querySelector('#table-partitions tbody tr:first-child td:nth-child(7)');"
        " window.wentEmpty ||= cell !== null && cell.textContent === ''; })"
        ".observe(document.body, {childList: true, subtree: true}); }"
    )
    read_at = page.locator("#read-at").inner_text()
    page.wait_for_function(
        "before => document.getElementById('read-at').textContent !== before", arg=read_at
    )
    expect(ends).not_to_be_empty()
    assert page.evaluate("window.wentEmpty") is False


def test_what_a_person_types_stays(open_window: OpenWindow) -> None:
    """The page renews itself around a form that somebody fills in."""
    window = open_window()
    window.open("replay?what=batch&batch_id=2")
    page = window.page
    reason = page.locator('input[name="reason"]')
    reason.fill("half a sent")
    page.locator('input[name="batch_id"]').fill("3")
    read_at = page.locator("#read-at").inner_text()
    page.wait_for_function(
        "before => document.getElementById('read-at').textContent !== before", arg=read_at
    )
    expect(reason).to_have_value("half a sent")
    expect(page.locator('input[name="batch_id"]')).to_have_value("3")


def test_a_number_may_be_pasted_as_it_is_shown(open_window: OpenWindow) -> None:
    """What is none is refused, and never left out: a replay would be wider than was asked."""
    window = open_window()
    window.open("replay?what=offsets&topic=alog&partitions=0&reason=a+test")
    page = window.page
    page.locator('input[name="from_offset"]').fill("1,234")
    page.locator('input[name="until_offset"]').fill("1,300")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#run")).to_contain_text("from 1234 until 1300")
    window.open("replay?what=offsets&topic=alog&partitions=0&reason=a+test")
    page.locator('input[name="from_offset"]').fill("0x10")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".said")).to_contain_text("Airflow has refused it")
    expect(page.locator('input[name="from_offset"]')).to_have_value("0x10")
    # A list of numbers is none, either.
    window.open("replay?what=batch&reason=a+test")
    page.locator('input[name="batch_id"]').fill("1,2")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".said")).to_contain_text("Airflow has refused it")
    window.refusals = True


def from_airflows_home(window: BrowserWindow) -> None:
    """Where a user begins: Airflow's own pages, and its navigation."""
    window.page.goto(window.running.address)
    window.click(window.page.get_by_role("button", name="Browse"))
    window.click(window.page.get_by_role("menuitem", name="Tally"))
    expect(window.framed.locator("h1")).to_have_text(PIPELINE)


def test_a_replay_takes_few_clicks_from_a_saved_rule_to_the_changed_chart(
    running: RunningStack, open_window: OpenWindow, picture: Callable[[BrowserWindow, str], None]
) -> None:
    """A level is added; the overview says what was counted without it, and replays it."""
    config = running.folder / "tally.toml"
    before = config.read_text(encoding="utf-8")
    config.write_text(before.replace('["ERROR"]', '["ERROR", "INFO"]'), encoding="utf-8")
    window = open_window()
    from_airflows_home(window)
    framed = window.framed
    lines = framed.locator("#chart figcaption")
    expect(lines).to_contain_text("lines, on the lines' own clock")
    old = int(lines.inner_text().split()[0].replace(",", ""))
    expect(framed.locator("#outdated")).to_contain_text("under other rules than today's")
    picture(window, "outdated")
    window.click(framed.locator("#outdated").get_by_role("link", name="Replay them"))
    window.click(framed.get_by_role("button", name="Preview"))
    expect(framed.get_by_text("Nothing was changed.")).to_be_visible()
    expect(framed.locator("main")).to_contain_text(f"{TOPIC}/3")
    picture(window, "preview")
    window.click(framed.get_by_role("button", name="Replay now"))
    expect(framed.get_by_text("1 of 1 batches committed")).to_be_visible(timeout=3 * PATIENCE_MS)
    expect(framed.locator("#run > .facts .badge")).to_have_text("success", timeout=3 * PATIENCE_MS)
    picture(window, "replayed")
    window.click(framed.get_by_role("link", name="Show these minutes"))
    expect(framed.locator(".bar.replayed").first).to_be_visible()
    assert int(lines.inner_text().split()[0].replace(",", "")) > old * 2
    expect(framed.locator("#outdated")).to_be_hidden()
    picture(window, "changed")
    assert window.clicks <= REPLAY_CLICKS
    assert running.run(f"{PIPELINE}_audit") == "success"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_everybody_can_use_the_pages_of_runs_and_minutes(
    size: tuple[int, int], theme: Theme, running: RunningStack, open_window: OpenWindow
) -> None:
    """A preview, a replay with what it has changed, and what is behind a bar."""
    dag = f"{PIPELINE}_replay"
    runs = running.airflow.ask("GET", f"/api/v2/dags/{dag}/dagRuns")["dag_runs"]
    window = open_window(size=size, theme=theme)
    addresses = [f"run?{urlencode({'dag_id': dag, 'run_id': run['dag_run_id']})}" for run in runs]
    at = running.first + timedelta(minutes=30)
    addresses.append(f"pipelines/{PIPELINE}/minute?at={at:%Y-%m-%dT%H:%M}")
    wrong: dict[str, list[str]] = {}
    for address in addresses:
        window.page.goto(f"{running.address}/tally/{address}")
        expect(window.page.locator("main table").first).to_be_visible()
        wide = window.page.evaluate("document.documentElement.scrollWidth")
        cut_off = [f"{wide} pixels wide"] if wide > size[0] else []
        wrong |= {address: found} if (found := [*window.complaints(), *cut_off]) else {}
    assert wrong == {}


def test_a_loss_is_decided_in_few_clicks(
    running: RunningStack, open_window: OpenWindow, picture: Callable[[BrowserWindow, str], None]
) -> None:
    """From Airflow's home: what is lost, what accepting means, a reason, done."""
    running.lose(3, 11)
    window = open_window()
    from_airflows_home(window)
    framed = window.framed
    expect(framed.locator("#health .badge")).to_have_text("fail")
    window.click(framed.locator("#health").get_by_role("link", name="Decide"))
    expect(framed.locator("main")).to_contain_text("they are never counted")
    expect(framed.locator('input[name="reason"]')).to_be_focused()
    window.page.keyboard.type("they were of a test")
    window.page.keyboard.press("Enter")  # presses neither of two buttons
    expect(framed.locator(".said")).to_be_empty()
    picture(window, "losses")
    window.click(framed.get_by_role("button", name="Accept 1 loss"))
    expect(framed.locator("#run")).to_contain_text("settle: success")
    expect(framed.locator("#run > .facts .badge")).to_have_text("success")
    assert window.clicks <= LOSS_CLICKS
    window.open("losses")
    expect(window.page.locator("#table-decided")).to_contain_text("they were of a test")
    expect(window.page.locator("#table-decided")).to_contain_text(OPERATOR)
    expect(window.page.locator("main")).to_contain_text("No loss waits")
    assert running.run(PIPELINE) == "success"


def test_a_reason_stays_when_another_loss_appears(
    running: RunningStack, open_window: OpenWindow
) -> None:
    """The page says that it has changed; what is decided is what was seen."""
    running.lose(3, 5)
    window = open_window()
    window.open("losses")
    page = window.page
    reason = page.locator('input[name="reason"]')
    reason.fill("the first of two")
    page.locator("h1").click()  # it stays also when it is left
    running.lose(1, 7)
    expect(page.locator("#refresh")).to_contain_text("A part that is in use has changed")
    expect(reason).to_have_value("the first of two")
    page.get_by_role("button", name="Accept 1 loss").click()
    expect(page.locator("#run > .facts .badge")).to_have_text("success")
    expect(page.locator("#run")).to_contain_text("accepted by")
    window.open("losses")
    expect(page.locator("#table-open tbody tr")).to_have_count(1)
    expect(page.locator("#table-open")).to_contain_text(f"{TOPIC}/1")
    reason.fill("the second")
    page.get_by_role("button", name="Accept 1 loss").click()
    expect(page.locator("#run > .facts .badge")).to_have_text("success")
    assert running.run(PIPELINE) == "success"


def test_a_lost_answer_starts_no_second_run(running: RunningStack, open_window: OpenWindow) -> None:
    """Airflow has taken the request; whoever presses again is led to that run."""
    dag = f"{PIPELINE}_replay"
    runs = f"/api/v2/dags/{dag}/dagRuns"
    before = running.airflow.ask("GET", runs)["total_entries"]
    window = open_window()
    window.open("replay?what=batch&batch_id=1&reason=a+test")
    page = window.page

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
        window.open(path)
        assert window.page.locator("form.steer").count() == 0
    window.open("replay")
    expect(window.page.locator("main")).to_contain_text("You may look, but not start")
    asked = f"{running.address}/api/v2/dags/{PIPELINE}_replay/dagRuns"
    refused = window.page.evaluate(
        "async url => (await fetch(url, {method: 'POST', headers: {'Content-Type':"
        " 'application/json'}, body: JSON.stringify({logical_date: null, conf: {}})})).status",
        asked,
    )
    assert refused == 403
    window.refusals = True


def test_an_operator_is_told_why_airflow_refuses(
    running: RunningStack, open_window: OpenWindow
) -> None:
    """In words, beside the button, and the form keeps what was typed."""
    window = open_window()
    window.open("replay")
    page = window.page
    page.locator('input[name="reason"]').fill("a test")
    page.context.clear_cookies()
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".said")).to_contain_text("sign in again")
    expect(page.locator('input[name="reason"]')).to_have_value("a test")
    window.refusals = True


def test_a_paused_dag_is_unpaused_where_it_is_seen(
    running: RunningStack, open_window: OpenWindow
) -> None:
    """Its runs would wait without a word."""
    running.airflow.pause(PIPELINE)
    window = open_window()
    window.open("")
    page = window.page
    expect(page.locator("#health")).to_contain_text("is paused in Airflow")
    page.locator("#health").get_by_role("button", name=f"Unpause {PIPELINE}").click()
    expect(page.locator("#health .badge")).to_have_text("ok")
    told = running.airflow.ask("GET", f"/api/v2/dags/{PIPELINE}")
    assert told["is_paused"] is False


def test_a_run_has_a_tab_of_tallys(
    running: RunningStack, open_window: OpenWindow, states: dict[str, Any]
) -> None:
    """In Airflow's own page of the run."""
    runs = running.airflow.ask("GET", f"/api/v2/dags/{PIPELINE}/dagRuns")["dag_runs"]
    run_id = next(run["dag_run_id"] for run in runs if run["state"] == "success")
    window = open_window()
    window.page.goto(f"{running.address}/dags/{PIPELINE}/runs/{run_id}")
    window.page.get_by_role("link", name="Tally").last.click()
    expect(window.framed.locator("#run")).to_contain_text("plan: success")


def test_a_link_can_be_passed_on(running: RunningStack, open_window: OpenWindow) -> None:
    """What a page shows is in the address of Airflow's window."""
    first = open_window()
    from_airflows_home(first)
    first.framed.get_by_role("link", name="Batches").click()
    first.framed.locator('select[name="kind"]').select_option("replay")
    first.framed.get_by_role("button", name="Show").click()
    first.page.wait_for_url("**/*kind=replay*")  # Airflow takes it over when the frame has loaded
    other = open_window(VIEWER)
    other.page.goto(first.page.url)
    expect(other.framed.locator('select[name="kind"]')).to_have_value("replay")


def test_the_tasks_metrics_arrive_at_a_collector(
    running: RunningStack, collector: Collector
) -> None:
    """Where Airflow's own go: what the ledger says after a batch, an audit and what was counted."""
    assert running.run(PIPELINE) == "success"  # what earlier tests have left
    collector.values.clear()
    running.produce(
        [line_of(running.first + timedelta(minutes=1), "ERROR", n) for n in range(5)], 0
    )
    assert running.run(PIPELINE) == "success"
    assert running.run(f"{PIPELINE}_audit") == "success"
    of = {"pipeline": PIPELINE}
    wait_until(lambda: collector.value("airflow.tally.audit_holds", **of) == 1)
    # As the plan has found it.
    wait_until(lambda: collector.value("airflow.tally.lag_offsets", **of) == 5)
    assert collector.value("airflow.tally.audit_violations", **of) == 0
    wait_until(lambda: (collector.value("airflow.tally.records", **of) or 0) >= 5)
    assert collector.value("airflow.tally.problem", **of, reason="late") == 0
    assert collector.value("airflow.tally.problem", **of, reason="paused") is None
    assert collector.value("airflow.tally.ledger_up", **of) is None
    wait_until(
        lambda: (collector.value("airflow.tally.batch_step_ms", **of, step="committed") or 0) > 0
    )
