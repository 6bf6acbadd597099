"""The style that the plugin's pages share, without a browser."""

import re
from importlib.resources import files

import pytest

STYLE = files("tally.airflow").joinpath("page_style.html").read_text(encoding="utf-8")
PAGES = ("status_page.html", "preview_page.html")
BACKGROUNDS = ("#ffffff", "#121212")
"""Of browsers: light and dark."""
CONTRAST_MIN = 4.5
"""WCAG 2.2, 1.4.3: text of normal size."""


def luminance(color: str) -> float:
    """The relative luminance of ``#rrggbb``, as WCAG defines it."""
    shares = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours."""
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("rule", re.findall(r"\S+ \{ color: light-dark\(.*?\);", STYLE))
def test_coloured_text_can_be_read_in_light_and_dark(rule: str) -> None:
    """Each colour has one for each background."""
    colors = re.findall(r"#[0-9a-f]{6}", rule)
    for color, background in zip(colors, BACKGROUNDS, strict=True):
        assert contrast(color, background) >= CONTRAST_MIN


def test_every_colour_of_text_has_a_light_and_a_dark_variant() -> None:
    """Otherwise the test above would not see it."""
    assert len(re.findall(r"[ {]color:", STYLE)) == len(re.findall(r"color: light-dark\(", STYLE))
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_a_landmark_and_only_its_tables_scroll(page: str) -> None:
    """It fits the width of a phone; a table that does not scrolls by itself, by keyboard too."""
    html = files("tally.airflow").joinpath(page).read_text(encoding="utf-8")
    assert html.count("<main>") == 1
    assert '{% include "page_style.html" %}' in html
    assert 'content="width=device-width' in STYLE
    regions = re.findall(r'<div class="scroll" tabindex="0" role="region" aria-label=', html)
    assert html.count("<table>") == len(regions) > 0
