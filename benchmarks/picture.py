"""Draws ``docs/performance.svg`` from the table of a backlog in ``docs/performance.md``.

``make docs`` writes it, a test holds the two equal. The standard library is enough.
"""

import sys
from collections.abc import Iterator
from html import escape

from benchmarks.page import PAGE, Table, get

SVG = PAGE.with_suffix(".svg")
BACKLOG = "backlog"
"""The table that is drawn."""
WIDTH, LEFT, TOP, ROW, BAR = 960, 330, 84, 44, 24
RATE = 2
"""The column that is drawn."""

STYLE = """
  .page { fill: #ffffff; stroke: #d1d9e0; }
  text { fill: #1f2328; font: 13.5px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans",
    sans-serif; }
  .title { font-size: 19px; font-weight: 600; }
  .quiet { fill: #59636e; }
  .end { text-anchor: end; }
  .ours { font-weight: 600; }
  .bar { fill: #afb8c1; }
  .bar.limit { fill: #d1d9e0; }
  .bar.ours { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d; }
    text { fill: #f0f6fc; }
    .quiet { fill: #9198a1; }
    .bar { fill: #656c76; }
    .bar.limit { fill: #3d444d; }
    .bar.ours { fill: #4493f8; }
  }
"""


def picture(table: Table) -> str:
    """The table's rates as bars."""
    return "\n".join([*_lines(table), "</svg>", ""])


def _lines(table: Table) -> Iterator[str]:
    height = TOP + ROW * len(table.rows) + 16
    rates = [float(row[RATE]) for row in table.rows]
    said = "; ".join(f"{_name(row[0])}: {row[RATE]}" for row in table.rows)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-labelledby="title description">'
    )
    yield f'<title id="title">{escape(table.headers[0])}: million lines per second</title>'
    yield f'<desc id="description">{escape(said)}</desc>'
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
    yield '<text class="title" x="24" y="36">Million lines per second</text>'
    yield f'<text class="quiet" x="24" y="60">{escape(table.headers[0])}</text>'
    scale = (WIDTH - LEFT - 90) / max(rates)
    for number, (row, rate) in enumerate(zip(table.rows, rates, strict=True)):
        y = TOP + ROW * number
        kind, name = _kind(row[0]), escape(_name(row[0]))
        yield f'<text class="end {kind}" x="{LEFT - 12}" y="{y + 17}">{name}</text>'
        yield (
            f'<rect class="bar {kind}" x="{LEFT}" y="{y}" width="{rate * scale:.1f}" '
            f'height="{BAR}" rx="3"/>'
        )
        x = LEFT + rate * scale + 10
        yield f'<text class="{kind}" x="{x:.1f}" y="{y + 17}">{rate:.2f}</text>'


def _kind(name: str) -> str:
    if name.startswith("**"):
        return "ours"
    return "limit" if "thrown away" in name else ""


def _name(name: str) -> str:
    """A name as text: without Markdown, and without what stands behind its colon or comma."""
    return name.replace("**", "").replace("`", "").split(":")[0].replace(", records", ": records")


if __name__ == "__main__":
    sys.stdout.write(picture(get(BACKLOG)))
