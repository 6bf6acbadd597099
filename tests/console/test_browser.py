"""The console in a browser, in the order of a day: what is seen, what is steered, by whom.

``make screenshots`` keeps the pictures in docs/images; a test run compares none.
"""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.console.collector import Collector
from tests.console.house import HOSTILE, OPERATOR, PIPELINE, TOPIC, VIEWER, House, line_of
from tests.console.visitor import (
    NARROW,
    PATIENCE_MS,
    WIDE,
    Theme,
    Visitor,
    signed_in,
    visit,
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

Visit = Callable[..., Visitor]


@pytest.fixture(scope="module")
def states(chromium: Browser, house: House) -> dict[str, Any]:
    """What the browser keeps of each user who has signed in."""
    return {user: signed_in(chromium, house, user) for user in ("admin", OPERATOR, VIEWER)}


@pytest.fixture
def come(chromium: Browser, house: House, states: dict[str, Any]) -> Iterator[Visit]:
    """Opens windows; none of them may have seen an error."""
    opened = []

    def visits(
        user: str = OPERATOR, size: tuple[int, int] = WIDE, theme: Theme = "light"
    ) -> Visitor:
        context, visitor = visit(chromium, house, states[user], size, theme)
        opened.append((context, visitor))
        return visitor

    yield visits
    for context, visitor in opened:
        context.close()
        assert visitor.problems == []


@pytest.fixture
def picture(tmp_path: Path) -> Callable[[Visitor, str], None]:
    """Takes a picture for the documentation, and otherwise one to look at after a failure."""
    folder = Path(PICTURES) if PICTURES else tmp_path
    return lambda visitor, name: visitor.picture(folder / f"console-{name}.png")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_everybody_can_use_each_page(size: tuple[int, int], theme: Theme, come: Visit) -> None:
    """Axe finds nothing of weight, nothing is cut off, and every page is more than its frame."""
    visitor = come(size=size, theme=theme)
    wrong: dict[str, list[str]] = {}
    for path in PAGES:
        visitor.open(path)
        expect(visitor.page.locator("main h1")).to_be_visible()
        wide = visitor.page.evaluate("document.documentElement.scrollWidth")
        cut_off = [f"{wide} pixels wide"] if wide > size[0] else []
        wrong |= {path: found} if (found := [*visitor.complaints(), *cut_off]) else {}
    assert wrong == {}
    dark = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(17, 20, 24)") == (theme == "dark")


def test_the_overview_says_whether_the_numbers_can_be_trusted(
    house: House, come: Visit, picture: Callable[[Visitor, str], None]
) -> None:
    """Health in words, age, rate and lag; the chart, and what is behind a minute of it."""
    house.produce([line_of(house.first, "ERROR", n) for n in range(7)], 1)
    for theme in ("light", "dark"):
        visitor = come(theme=theme)
        visitor.open("")
        page = visitor.page
        expect(page.locator("#health .badge")).to_have_text("ok")
        expect(page.locator("#health")).to_contain_text("records/s")
        expect(page.locator("#kafka")).to_contain_text("Lag 7 records")
        bars = page.locator(".chart a")
        expect(bars).to_have_count(60)
        bars.nth(30).hover()
        expect(page.locator("#behind")).to_contain_text("Segments with lines of this minute")
        expect(page.locator("#behind")).to_contain_text(f"{TOPIC}/0")
        page.mouse.move(0, 0)
        picture(visitor, "overview" if theme == "light" else "overview-dark")
    # With the keyboard alone.
    bars.nth(0).focus()
    page.keyboard.press("ArrowRight")
    expect(bars.nth(1)).to_be_focused()
    narrow = come(size=NARROW)
    narrow.open("")
    picture(narrow, "overview-narrow")
    assert house.run(PIPELINE) == "success"


def test_each_page_has_its_picture(
    house: House, come: Visit, picture: Callable[[Visitor, str], None]
) -> None:
    """With what it is for on it."""
    visitor = come()
    for partition, lines in ((1, 400), (3, 90)):
        minutes = [house.first + timedelta(minutes=n % 60) for n in range(lines)]
        house.produce([line_of(at, "ERROR", n) for n, at in enumerate(minutes)], partition)
    for path, name, said in (
        ("partitions", "partitions", "expires in"),
        ("batches", "batches", "committed"),
        ("batches/2", "batch", "until planned"),
        ("replay?what=batch&batch_id=2", "replay", "Reason, kept in the ledger"),
        ("audit", "audit", "holds"),
    ):
        visitor.open(path)
        expect(visitor.page.locator("main")).to_contain_text(said)
        picture(visitor, name)
    assert house.run(PIPELINE) == "success"


def test_a_hostile_line_is_text(come: Visit, picture: Callable[[Visitor, str], None]) -> None:
    """It is read as it was written, and does nothing; its exact bytes are there, too."""
    visitor = come()
    page = visitor.page
    table = page.locator("#table-dead_letters")
    for line in HOSTILE:
        for address in ("dead-letters", f"dead-letters?partition={TOPIC}/2&text={quote(line)}"):
            visitor.open(address)
            expect(table.get_by_text(line, exact=True)).to_be_visible()
            assert page.locator("main script, main img").count() == 0
            expect(page).to_have_title(f"Dead letters · {PIPELINE} · Tally")
    visitor.open("dead-letters")
    expect(page.locator("#table-reasons")).to_contain_text("4")
    picture(visitor, "dead-letters")


def test_what_a_person_types_stays(come: Visit) -> None:
    """The page renews itself around a form that somebody fills in."""
    visitor = come()
    visitor.open("replay?what=batch&batch_id=2")
    page = visitor.page
    reason = page.locator('input[name="reason"]')
    reason.fill("half a sent")
    page.locator('input[name="batch_id"]').fill("3")
    read_at = page.locator("#read-at").inner_text()
    page.wait_for_function(
        "before => document.getElementById('read-at').textContent !== before", arg=read_at
    )
    expect(reason).to_have_value("half a sent")
    expect(page.locator('input[name="batch_id"]')).to_have_value("3")


def test_a_number_may_be_pasted_as_it_is_shown(come: Visit) -> None:
    """What is none is refused, and never left out: a replay would be wider than was asked."""
    visitor = come()
    visitor.open("replay?what=offsets&topic=alog&partitions=0&reason=a+test")
    page = visitor.page
    page.locator('input[name="from_offset"]').fill("1,234")
    page.locator('input[name="until_offset"]').fill("1,300")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#run")).to_contain_text("from 1234 until 1300")
    visitor.open("replay?what=offsets&topic=alog&partitions=0&reason=a+test")
    page.locator('input[name="from_offset"]').fill("0x10")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".said")).to_contain_text("Airflow has refused it")
    expect(page.locator('input[name="from_offset"]')).to_have_value("0x10")
    visitor.problems.clear()


def from_airflows_home(visitor: Visitor) -> None:
    """Where a user begins: Airflow's own pages, and its navigation."""
    visitor.page.goto(visitor.house.address)
    visitor.click(visitor.page.get_by_role("button", name="Browse"))
    visitor.click(visitor.page.get_by_role("menuitem", name="Tally"))
    expect(visitor.framed.locator("h1")).to_have_text(PIPELINE)


def test_a_replay_takes_few_clicks_from_a_saved_rule_to_the_changed_chart(
    house: House, come: Visit, picture: Callable[[Visitor, str], None]
) -> None:
    """A level is added; the overview says what was counted without it, and replays it."""
    config = house.folder / "tally.toml"
    before = config.read_text(encoding="utf-8")
    config.write_text(before.replace('["ERROR"]', '["ERROR", "INFO"]'), encoding="utf-8")
    visitor = come()
    from_airflows_home(visitor)
    framed = visitor.framed
    lines = framed.locator("#chart figcaption")
    expect(lines).to_contain_text("lines, on the lines' own clock")
    old = int(lines.inner_text().split()[0].replace(",", ""))
    expect(framed.locator("#outdated")).to_contain_text("under other rules than today's")
    picture(visitor, "outdated")
    visitor.click(framed.locator("#outdated").get_by_role("link", name="Replay them"))
    visitor.click(framed.get_by_role("button", name="Preview"))
    expect(framed.get_by_text("Nothing was changed.")).to_be_visible()
    expect(framed.locator("main")).to_contain_text(f"{TOPIC}/3")
    picture(visitor, "preview")
    visitor.click(framed.get_by_role("button", name="Replay now"))
    expect(framed.get_by_text("1 of 1 batches committed")).to_be_visible(timeout=3 * PATIENCE_MS)
    expect(framed.locator("#run > .facts .badge")).to_have_text("success", timeout=3 * PATIENCE_MS)
    picture(visitor, "replayed")
    visitor.click(framed.get_by_role("link", name="Show these minutes"))
    expect(framed.locator(".bar.replayed").first).to_be_visible()
    assert int(lines.inner_text().split()[0].replace(",", "")) > old * 2
    expect(framed.locator("#outdated")).to_be_hidden()
    picture(visitor, "changed")
    assert visitor.clicks <= REPLAY_CLICKS
    assert house.run(f"{PIPELINE}_audit") == "success"


def test_a_loss_is_decided_in_few_clicks(
    house: House, come: Visit, picture: Callable[[Visitor, str], None]
) -> None:
    """From Airflow's home: what is lost, what accepting means, a reason, done."""
    house.lose(3, 11)
    visitor = come()
    from_airflows_home(visitor)
    framed = visitor.framed
    expect(framed.locator("#health .badge")).to_have_text("fail")
    visitor.click(framed.locator("#health").get_by_role("link", name="Decide"))
    expect(framed.locator("main")).to_contain_text("they are never counted")
    expect(framed.locator('input[name="reason"]')).to_be_focused()
    visitor.page.keyboard.type("they were of a test")
    picture(visitor, "losses")
    visitor.click(framed.get_by_role("button", name="Accept 1 loss"))
    expect(framed.locator("#run")).to_contain_text("settle: success")
    expect(framed.locator("#run > .facts .badge")).to_have_text("success")
    assert visitor.clicks <= LOSS_CLICKS
    visitor.open("losses")
    expect(visitor.page.locator("#table-decided")).to_contain_text("they were of a test")
    expect(visitor.page.locator("#table-decided")).to_contain_text(OPERATOR)
    expect(visitor.page.locator("main")).to_contain_text("No loss waits")
    assert house.run(PIPELINE) == "success"


def test_a_viewer_looks_and_starts_nothing(house: House, come: Visit) -> None:
    """No button, and where a script asks all the same, Airflow refuses."""
    visitor = come(VIEWER)
    for path in PAGES:
        visitor.open(path)
        assert visitor.page.locator("form.steer").count() == 0
    visitor.open("replay")
    expect(visitor.page.locator("main")).to_contain_text("You may look, but not start")
    asked = f"{house.address}/api/v2/dags/{PIPELINE}_replay/dagRuns"
    refused = visitor.page.evaluate(
        "async url => (await fetch(url, {method: 'POST', headers: {'Content-Type':"
        " 'application/json'}, body: JSON.stringify({logical_date: null, conf: {}})})).status",
        asked,
    )
    assert refused == 403
    visitor.problems.clear()  # the refusal is in the browser's own log


def test_an_operator_is_told_why_airflow_refuses(house: House, come: Visit) -> None:
    """In words, beside the button, and the form keeps what was typed."""
    visitor = come()
    visitor.open("replay")
    page = visitor.page
    page.locator('input[name="reason"]').fill("a test")
    page.context.clear_cookies()
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".said")).to_contain_text("sign in again")
    expect(page.locator('input[name="reason"]')).to_have_value("a test")
    visitor.problems.clear()


def test_a_paused_dag_is_unpaused_where_it_is_seen(house: House, come: Visit) -> None:
    """Its runs would wait without a word."""
    house.airflow.pause(PIPELINE)
    visitor = come()
    visitor.open("")
    page = visitor.page
    expect(page.locator("#health")).to_contain_text("is paused in Airflow")
    page.locator("#health").get_by_role("button", name=f"Unpause {PIPELINE}").click()
    expect(page.locator("#health .badge")).to_have_text("ok")
    told = house.airflow.ask("GET", f"/api/v2/dags/{PIPELINE}")
    assert told["is_paused"] is False


def test_a_run_has_a_tab_of_tallys(house: House, come: Visit, states: dict[str, Any]) -> None:
    """In Airflow's own page of the run."""
    runs = house.airflow.ask("GET", f"/api/v2/dags/{PIPELINE}/dagRuns")["dag_runs"]
    run_id = next(run["dag_run_id"] for run in runs if run["state"] == "success")
    visitor = come()
    visitor.page.goto(f"{house.address}/dags/{PIPELINE}/runs/{run_id}")
    visitor.page.get_by_role("link", name="Tally").last.click()
    expect(visitor.framed.locator("#run")).to_contain_text("plan: success")


def test_a_link_can_be_passed_on(house: House, come: Visit) -> None:
    """What a page shows is in the address of Airflow's window."""
    first = come()
    from_airflows_home(first)
    first.framed.get_by_role("link", name="Batches").click()
    first.framed.locator('select[name="kind"]').select_option("replay")
    first.framed.get_by_role("button", name="Show").click()
    first.page.wait_for_url("**/*kind=replay*")  # Airflow takes it over when the frame has loaded
    other = come(VIEWER)
    other.page.goto(first.page.url)
    expect(other.framed.locator('select[name="kind"]')).to_have_value("replay")


def test_the_tasks_metrics_arrive_at_a_collector(house: House, collector: Collector) -> None:
    """Where Airflow's own go: what the ledger says after a batch, an audit and what was counted."""
    house.produce([line_of(house.first + timedelta(minutes=1), "ERROR", n) for n in range(5)], 0)
    assert house.run(PIPELINE) == "success"
    assert house.run(f"{PIPELINE}_audit") == "success"
    of = {"pipeline": PIPELINE}
    wait_until(lambda: collector.value("airflow.tally.audit_holds", **of) == 1)
    assert collector.value("airflow.tally.lag_offsets", **of) == 5  # as the plan has found it
    assert collector.value("airflow.tally.audit_violations", **of) == 0
    assert (collector.value("airflow.tally.records", **of) or 0) >= 5
    assert collector.value("airflow.tally.problem", **of, reason="late") == 0
    assert collector.value("airflow.tally.problem", **of, reason="paused") is None
    steps = collector.value("airflow.tally.batch_step_ms", **of, step="committed")
    assert steps is not None
    assert steps > 0
