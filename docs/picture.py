"""Draws ``docs/batch-lifecycle.svg``; ``make picture`` writes it, a test holds the two equal.

The standard library is enough. The picture has its own background and colours, for light and
dark mode, so that it is readable on every page.
"""

import sys
from collections.abc import Iterator, Sequence
from html import escape

WIDTH, HEIGHT = 960, 560

# Five columns, one for each step; below them what a kill means.
LEFT, COLUMN, GAP = 124, 152, 13
STRIP_Y, STRIP_HEIGHT = 84, 36
STEP_Y, STEP_HEIGHT = 196, 120
LEDGER_Y, LEDGER_HEIGHT = 372, 112
AXIS_Y = 516
RIGHT = LEFT + 5 * COLUMN + 4 * GAP
COMMIT_X = RIGHT - COLUMN // 2

CELLS = 10
CELL = COLUMN / CELLS

STEPS: Sequence[tuple[str, Sequence[str]]] = (
    ("Plan", ("fix the ranges in", "the ledger, before", "any record is read")),
    ("Claim", ("raise the attempt:", "older attempts can", "no longer commit")),
    ("Count", ("Spark reads exactly", "these ranges once,", "grouped by minute")),
    ("Check", ("every offset read?", "still the same topic", "and cluster?")),
    ("Commit", ("counts and offsets", "together, in one", "transaction")),
)

STYLE = """
  .page { fill: #ffffff; stroke: #d1d9e0; }
  text { fill: #1f2328; font: 13.5px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans",
    sans-serif; }
  .title { font-size: 19px; font-weight: 600; }
  .lane { font-size: 16px; font-weight: 600; }
  .step { font-size: 16px; font-weight: 600; }
  .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
    monospace; font-size: 13px; }
  .quiet { fill: #59636e; }
  .middle { text-anchor: middle; }
  .end { text-anchor: end; }
  .digit { fill: #ffffff; font-weight: 600; text-anchor: middle; }
  .box { fill: #f6f8fa; stroke: #d1d9e0; }
  .line { fill: none; stroke: #818b98; stroke-width: 1.5; }
  .dashed { stroke-dasharray: 4 4; }
  .head { fill: #818b98; }
  .disc { fill: #59636e; }
  .old { fill: #d1d9e0; }
  .later { fill: none; stroke: #818b98; stroke-dasharray: 3 3; }
  .now { fill: #ddf4ff; stroke: #0969da; }
  .now-line { fill: none; stroke: #0969da; stroke-width: 2.5; }
  .now-head, .now-disc, text.now-text { fill: #0969da; }
  .done { fill: #dafbe1; stroke: #1a7f37; }
  .done-line { fill: none; stroke: #1a7f37; stroke-width: 2.5; }
  .done-head, .done-disc, text.done-text { fill: #1a7f37; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d; }
    text { fill: #f0f6fc; }
    .quiet { fill: #9198a1; }
    .digit { fill: #0d1117; }
    .box { fill: #151b23; stroke: #3d444d; }
    .line, .later { stroke: #9198a1; }
    .head, .disc { fill: #9198a1; }
    .old { fill: #3d444d; }
    .now { fill: #10233f; stroke: #4493f8; }
    .now-line { stroke: #4493f8; }
    .now-head, .now-disc, text.now-text { fill: #4493f8; }
    .done { fill: #12301c; stroke: #3fb950; }
    .done-line { stroke: #3fb950; }
    .done-head, .done-disc, text.done-text { fill: #3fb950; }
  }
"""

DESCRIPTION = (
    "A minute batch in five steps. Plan: the offset range [300, 310) of the partition alog/0 is "
    "written into the ledger in MySQL before any record is read. Claim: the attempt is raised. "
    "Count: Spark reads exactly that range. Check: every offset was read. Commit: next_offset, "
    "counts and dead letters change in one transaction. A kill before the commit leaves the "
    "result unchanged, and the next attempt reads the same range."
)


def render() -> str:
    """The whole picture."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        f' width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title description">',
        '<title id="title">Batch lifecycle</title>',
        f'<desc id="description">{escape(DESCRIPTION)}</desc>',
        f"<style>{STYLE}</style>",
        _box("page", 0.5, 0.5, WIDTH - 1, HEIGHT - 1, 12),
        *_header(),
        *_kafka(),
        *_steps(),
        *_ledger(),
        *_arrows(),
        *_axis(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _header() -> Iterator[str]:
    yield _text("title", 24, 38, "Batch lifecycle")
    yield _text("quiet end", RIGHT, 38, "Airflow starts a batch each minute; a retry resumes it")


def _kafka() -> Iterator[str]:
    """One partition as a strip of offsets, the planned range above the step that reads it."""
    first = _column(2)
    yield _text("lane", 24, STRIP_Y + 23, "Kafka")
    yield _text("mono quiet", 24, STRIP_Y + 41, "alog/0")
    beside = int((first - LEFT) / CELL)
    for number in range(-beside, CELLS + beside):
        kind = "now" if 0 <= number < CELLS else "old" if number < 0 else "later"
        # The strip fades out at both ends: the partition goes on.
        left = min(number + beside, CELLS + beside - 1 - number) + 1
        cell = _box(kind, first + number * CELL + 1, STRIP_Y, CELL - 2, STRIP_HEIGHT, 2)
        yield f'<g opacity="{left / 5:g}">{cell}</g>' if left < 5 else cell
    yield _text("mono now-text", first, STRIP_Y - 8, "300")
    yield _text("mono now-text end", first + COLUMN, STRIP_Y - 8, "310")
    yield _text("quiet", LEFT, STRIP_Y - 8, "counted")
    yield _text("quiet end", RIGHT, STRIP_Y - 8, "newer: for the next batch")


def _steps() -> Iterator[str]:
    yield _text("lane", 24, STEP_Y + 54, "Tally")
    yield _text("quiet", 24, STEP_Y + 74, "and Spark")
    for number, (name, lines) in enumerate(STEPS):
        x, kind = _column(number), _kind(number)
        yield _box(kind or "box", x, STEP_Y, COLUMN, STEP_HEIGHT, 8)
        yield f'<circle class="{_class(kind, "disc")}" cx="{x + 23}" cy="{STEP_Y + 26}" r="12"/>'
        yield _text("digit", x + 23, STEP_Y + 31, str(number + 1))
        yield _text("step", x + 44, STEP_Y + 32, name)
        for row, line in enumerate(lines):
            yield _text("", x + 11, STEP_Y + 62 + row * 20, line)


def _ledger() -> Iterator[str]:
    yield _text("lane", 24, LEDGER_Y + 54, "MySQL")
    yield _text("quiet", 24, LEDGER_Y + 74, "the ledger")
    yield _box("box", LEFT, LEDGER_Y, RIGHT - LEFT, LEDGER_HEIGHT, 8)
    x = LEFT + 11
    yield _text("mono", x, LEDGER_Y + 30, "batch 42")
    yield _text("mono now-text", x, LEDGER_Y + 52, "alog/0 [300, 310)")
    yield _text("mono", x, LEDGER_Y + 74, "planned")
    yield _text("quiet", x, LEDGER_Y + 96, "range never changes")
    yield _text("mono", _column(1) + 11, LEDGER_Y + 30, "attempt 1 → 2")
    yield _text("quiet middle", _middle(2) + 20, LEDGER_Y + 61, "nothing written")
    x = _column(3) + 30
    yield _box("done", x, LEDGER_Y + 10, RIGHT - 10 - x, LEDGER_HEIGHT - 20, 6)
    for row, line in enumerate(
        (
            "next_offset 300 → 310",
            "error_log  + these counts",
            "dead letters, totals",
        )
    ):
        yield _text("mono", x + 14, LEDGER_Y + 33 + row * 19, line)
    yield _text("mono done-text", x + 14, LEDGER_Y + 90, "batch committed")


def _arrows() -> Iterator[str]:
    above, below = STRIP_Y + STRIP_HEIGHT + 10, STEP_Y - 6
    yield _arrow("", _middle(0), above, below, dashed=True)
    yield _text("quiet", _middle(0) + 10, (above + below) / 2 + 5, "ends, ids")
    yield _arrow("now", _middle(2), above - 4, below)
    yield _text("now-text", _middle(2) + 12, (above + below) / 2 + 5, "records")
    yield _arrow("", _middle(3), above, below, dashed=True)
    yield _text("quiet", _middle(3) + 10, (above + below) / 2 + 5, "ends, ids")
    above, below = STEP_Y + STEP_HEIGHT + 8, LEDGER_Y - 6
    for number in (0, 1):
        yield _arrow("", _middle(number), above, below)
    yield _arrow("done", _middle(4), above, below + 10)
    for number in range(4):
        x, y = _column(number) + COLUMN + GAP / 2, STEP_Y + STEP_HEIGHT / 2
        yield f'<path class="line" d="M{x - 2.5:g} {y - 5:g}l5 5l-5 5"/>'


def _axis() -> Iterator[str]:
    """What a kill means, before and after the commit."""
    yield f'<path class="line" d="M{LEFT} {AXIS_Y - 5}v10m0 -5H{COMMIT_X}"/>'
    yield f'<path class="done-line" d="M{COMMIT_X} {AXIS_Y}H{RIGHT}m0 -5v10"/>'
    yield f'<circle class="done-disc" cx="{COMMIT_X}" cy="{AXIS_Y}" r="6"/>'
    yield _text("lane", 24, AXIS_Y + 6, "Killed?")
    yield _text(
        "",
        LEFT,
        AXIS_Y + 27,
        "Before the commit: the result is unchanged; the next attempt reads [300, 310) again.",
    )
    yield _text("done-text end", RIGHT, AXIS_Y + 27, "Counted once.")


def _column(number: int) -> int:
    return LEFT + number * (COLUMN + GAP)


def _middle(number: int) -> float:
    return _column(number) + COLUMN / 2


def _kind(number: int) -> str:
    return {2: "now", 4: "done"}.get(number, "")


def _class(kind: str, what: str) -> str:
    return f"{kind}-{what}" if kind else what


def _box(kind: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'rx="{radius:g}"/>'
    )


def _text(kind: str, x: float, y: float, text: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _arrow(kind: str, x: float, top: float, bottom: float, *, dashed: bool = False) -> str:
    dashes = " dashed" if dashed else ""
    return (
        f'<path class="{_class(kind, "line")}{dashes}" d="M{x:g} {top:g}V{bottom - 8:g}"/>'
        f'<path class="{_class(kind, "head")}" '
        f'd="M{x - 6:g} {bottom - 9:g}h12l-6 10z"/>'
    )


if __name__ == "__main__":
    sys.stdout.write(render())
