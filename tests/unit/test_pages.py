"""The style, the templates and the limit of the console, without a browser."""

import csv
import hashlib
import io
import re
import threading
from importlib.resources import files
from operator import itemgetter
from typing import Any

import anyio
import pytest
from fastapi import Response

from tally.airflow.console import drawing
from tally.airflow.console.drawing import RequestLimit, as_csv
from tally.airflow.console.page import SHOWN_MAX, Page, Table
from tally.reading.columns import Column

CONSOLE = files("tally.airflow.console")
STYLE = CONSOLE.joinpath("static/console.css").read_text(encoding="utf-8")
SCRIPT = "".join(
    CONSOLE.joinpath("static", name).read_text(encoding="utf-8")
    for name in ("console.js", "chart.js")
)
PUBLISHED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""SHA-256 of the files of uPlot 1.6.32, as its package on npm has them."""
TEMPLATES = {
    path.name: path.read_text(encoding="utf-8") for path in CONSOLE.joinpath("templates").iterdir()
}
COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(
        r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", STYLE
    )
}
TEXTS = ("ink", "quiet", "link", "ok", "warn", "fail")
GROUNDS = ("ground", "raised")
DRAWN = ("counted", "planned", "lost", "waiting", "replayed", "lines", "lag", "read")
TEXT_CONTRAST_MIN = 4.5
"""WCAG 2.2, 1.4.3: text of normal size."""
DRAWN_CONTRAST_MIN = 3.0
"""WCAG 2.2, 1.4.11: parts of a drawing."""


def luminance(color: str) -> float:
    """The relative luminance of ``#rrggbb``, as WCAG defines it."""
    shares = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


def test_what_is_shown_can_be_read_in_light_and_dark() -> None:
    """Text on each background; bars and strips are drawn on the raised ground."""
    pairs = [(text, ground, TEXT_CONTRAST_MIN) for text in TEXTS for ground in GROUNDS]
    pairs += [(drawn, "raised", DRAWN_CONTRAST_MIN) for drawn in DRAWN]
    chips = [(f"{state}-ground", state) for state in ("ok", "warn", "fail")]
    pairs += [(text, ground, TEXT_CONTRAST_MIN) for ground, text in chips]
    pairs += [("ink", ground, TEXT_CONTRAST_MIN) for ground, _ in chips]
    pairs += [(text, "off-ground", TEXT_CONTRAST_MIN) for text in ("quiet", "ok", "warn", "fail")]
    for name, ground, least in pairs:
        for one, other in zip(COLOURS[name], COLOURS[ground], strict=True):
            assert contrast(one, other) >= least, (name, ground)
    said = set(re.findall(r"[ {]color: ([^;]+);", STYLE))  # others would not be seen above
    known = {f"var(--{name})" for name in TEXTS} | {"inherit"}
    assert said - known == {"light-dark(#ffffff, #06264f)"}
    buttons = re.findall(
        r"\.(?:primary|danger) {[^}]*background: light-dark\((.*?), (.*?)\)", STYLE
    )
    assert len(buttons) == 2
    for grounds in buttons:
        for text, ground in zip(("#ffffff", "#06264f"), grounds, strict=True):
            assert contrast(text, ground) >= TEXT_CONTRAST_MIN
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_a_template_trusts_no_value_and_only_tables_scroll() -> None:
    """No value is markup, no script stands in a page, and a page fits the width of a phone."""
    for name, html in TEMPLATES.items():
        assert "|safe" not in html.replace(" ", ""), name
        assert "autoescape" not in html, name
        assert not re.search(r"<script(?! src=)|<style| style=| on\w+=|javascript:", html), name
        regions = re.findall(r'<div class="scroll" tabindex="0" role="region" aria-label=', html)
        assert html.count("<table") == len(regions), name
        if "{% extends" in html:
            assert html.startswith('{% extends "base.html" %}'), name
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b", SCRIPT)
    base = TEMPLATES["base.html"]
    assert base.count("<main>") == 1
    assert 'content="width=device-width' in base


def test_the_charts_library_is_as_it_was_published() -> None:
    """With its licence beside it, and without what the content security policy forbids."""
    folder = CONSOLE.joinpath("static/uplot")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name: hashlib.sha256(files[name]).hexdigest() for name in PUBLISHED} == PUBLISHED
    assert files.keys() == PUBLISHED.keys() | {"LICENSE"}
    assert b"MIT License" in files["LICENSE"]
    assert not re.search(rb"innerHTML|\beval\(|Function\(", files["uPlot.iife.min.js"])


def test_a_sparkline_fits_its_drawing() -> None:
    """Whatever the numbers; a share that is not nothing never reads as nothing."""
    assert drawing.spark_points([0, 5, 10]) == "0.0,26.0 50.0,14.0 100.0,2.0"
    for values in ([], [7], [0, 0]):
        assert drawing.spark_points(values) == "0.0,26.0 100.0,26.0"
    assert list(map(drawing.share_text, (0, 0.0001, 0.5))) == ["0 %", "< 0.1 %", "50.0 %"]


def table(*rows: dict[str, Any]) -> Table:
    columns = [Column(key=name, title=name, of=itemgetter(name)) for name in rows[0]]
    return Table("t", "All", columns, rows)


def test_a_text_in_a_csv_is_no_formula() -> None:
    """Blanks, the full width of East Asian keyboards and semicolons begin formulas, too."""
    formulas = ["=1+1", "--1", "-x", "@x", " =1", "\u00a0=1", "\n=1", "\tx", "\u200b=1", "\ufeff@x"]
    for text in (*formulas, "\uff1d1", '="x"', "-1+cmd|x", "- -\u200b-(1)"):
        _, first, number = csv.reader(io.StringIO(as_csv(table({"n": text}, {"n": -1}))))
        assert first == [f"'{text}"]
        assert number == ["-1"]
    behind = {"a;=x": "a;'=x", "b; -x;c": "b;' -x;c", ";;@x": ";;'@x", "-1;=2": "-1;'=2"}
    for text, altered in behind.items():
        assert as_csv(table({"n": text})) == f'"n"\r\n"{altered}"\r\n'


def test_a_text_that_is_no_formula_is_exported_as_it_is() -> None:
    """Signs alone and numbers are none; the quote ends them where a comma separates no cells."""
    signs = ["x';--", "--", "a;--;b", "- -", "="]
    for text in (*signs, "-1", "+1,5", "a; -1.5 ;b", "a -b", "a=1", ""):
        assert as_csv(table({"n": text, "m": "5"})) == f'"n","m"\r\n"{text}","5"\r\n'


def test_a_page_shows_a_bounded_part_of_a_table() -> None:
    """And says so; the export has all of it."""
    whole = table(*({"n": number} for number in range(SHOWN_MAX + 1)))
    macro = '{% from "macros.html" import table with context %}{{ table(page, "t") }}'
    page = Page("", {}, (whole,))
    html = drawing.ENVIRONMENT.from_string(macro).render(page=page, query={}, root="", here="p")
    assert html.count("<tr>") == SHOWN_MAX + 1  # with the heading
    assert "The first 500 of 501 rows" in html
    assert len(as_csv(whole).splitlines()) == SHOWN_MAX + 2
    # A rate has no exponent: a million a second is a number that somebody reads in a hurry.
    rates = [0, 1 / 30, 2.5, 1234567.8, 1e-9]
    told = ["0", "0.0333", "2.5", "1,234,568", "less than 0.001"]
    assert list(map(drawing.rate_text, rates)) == told


AT_A_TIME = 3
QUEUED_MAX = 20


def test_a_flood_of_requests_neither_takes_all_threads_nor_waits_for_ever() -> None:
    """So many are answered at a time, so many wait, and the next one is told to come again."""
    free, lock = threading.Event(), threading.Lock()
    now, most, codes = [0], [0], list[int]()

    def work() -> Response:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        assert free.wait(60)
        with lock:
            now[0] -= 1
        return Response("an answer")

    async def flood() -> None:
        limit = RequestLimit(at_a_time=AT_A_TIME, queued_max=QUEUED_MAX)

        async def ask() -> None:
            codes.append((await limit.run(work)).status_code)

        async with anyio.create_task_group() as group:
            for _ in range(AT_A_TIME + QUEUED_MAX):
                group.start_soon(ask)
            while limit.queued < QUEUED_MAX or now[0] < AT_A_TIME:
                await anyio.sleep(0.01)
            answer = await limit.run(work)
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            free.set()

    anyio.run(flood)
    assert codes == [200] * (AT_A_TIME + QUEUED_MAX)
    assert most == [AT_A_TIME]
