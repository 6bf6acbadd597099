"""What the console draws: bars over time, and partitions as strips. Numbers only, no markup."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.reading.minutes import MinutesView
from tally.status.status import PartitionStatus

WIDTH: Final = 960
BASE: Final = 160
"""Where the bars stand; the times are below."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One bar, in units of the drawing."""

    x: float
    width: float
    y: float
    height: float
    at: datetime
    """Its first minute."""
    lines: int
    """What it stands for."""
    mark: str
    """``replayed``, ``outdated`` or empty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """A time below the bars."""

    x: float
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class BarChart:
    """Bars over a span of time."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    most: int
    """The highest bar's lines."""

    @property
    def marks(self) -> list[str]:
        """The marks that its bars have."""
        return sorted({bar.mark for bar in self.bars if bar.mark}, reverse=True)


def bar_chart(view: MinutesView) -> BarChart:
    """The bars of a span of minutes; empty while the result is."""
    if view.first_minute is None or view.until_minute is None:
        return BarChart(bars=(), ticks=(), most=0)
    span = view.until_minute - view.first_minute
    most = max((bar.lines for bar in view.bars), default=0)
    step = WIDTH * (view.step / span)
    bars = [
        Bar(
            x=round(WIDTH * ((bar.first_minute - view.first_minute) / span), 2),
            width=round(max(step * 0.85, 0.8), 2),
            y=round(BASE - (height := _height(bar.lines, most)), 2),
            height=round(height, 2),
            at=bar.first_minute,
            lines=bar.lines,
            mark="outdated" if bar.outdated else "replayed" if bar.replayed else "",
        )
        for bar in view.bars
    ]
    ticks = [Tick(x=WIDTH * part / 6, at=view.first_minute + span * part / 6) for part in range(6)]
    return BarChart(bars=tuple(bars), ticks=tuple(ticks), most=most)


def _height(lines: int, most: int) -> float:
    # A bar of one line beside a million is still to be seen.
    return max(2.0, (BASE - 10) * lines / most) if most else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A part of a strip, in percent of its width."""

    kind: str
    """``gone``, ``counted``, ``planned``, ``lost`` or ``waiting``."""
    left: float
    width: float
    offsets: int
    """How many offsets it stands for."""
    from_offset: int
    until_offset: int


def stretches(partition: PartitionStatus) -> tuple[Stretch, ...]:
    """What has become of the offsets of a partition, from the first known to the last.

    Parts are as wide as they have offsets, and wide enough to be seen.
    """
    parts = [(kind, a, b) for kind, a, b in _parts(partition) if a < b]
    total = sum(b - a for _, a, b in parts)
    widths = [max(2.0, 100 * (b - a) / total) for _, a, b in parts]
    scale = 100 / sum(widths) if widths else 1
    left = 0.0
    found = []
    for (kind, a, b), width in zip(parts, widths, strict=True):
        found.append(
            Stretch(
                kind=kind,
                left=round(left, 2),
                width=round(width * scale, 2),
                offsets=b - a,
                from_offset=a,
                until_offset=b,
            )
        )
        left += width * scale
    return tuple(found)


def _parts(p: PartitionStatus) -> Iterator[tuple[str, int, int]]:
    following = p.next_offset if p.next_offset is not None else (p.kafka_earliest or 0)
    earliest, end = p.kafka_earliest, p.kafka_end
    start = p.start_offset if p.start_offset is not None else following
    gone_until = min(following, earliest) if earliest is not None else start
    yield "gone", start, gone_until
    yield "counted", max(start, gone_until), following
    at = following
    if p.open_loss is not None:
        yield "lost", max(at, p.open_loss.from_offset), p.open_loss.until_offset
        at = max(at, p.open_loss.until_offset)
    if p.planned_until is not None:
        yield "planned", at, p.planned_until
        at = max(at, p.planned_until)
    if end is not None:
        yield "waiting", max(at, earliest or 0), end
