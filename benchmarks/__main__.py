"""``make bench``: Tally beside its peers, and the tables and the picture of the documentation.

Runs the comparisons one after the other. Each result replaces its table in ``docs/performance.md``;
at last the picture is drawn from it. With ``--quick`` few lines are counted in one round, which
shows that everything works and nothing else: the tables are printed, and the page stays as it is.
With ``--all`` the backlog is counted by tools too that are installed for it.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

from benchmarks import backlog, page, scaling, small_batch
from benchmarks.page import Table
from benchmarks.peers.isolated import ISOLATED, Isolated
from benchmarks.picture import BACKLOG, SVG, picture
from benchmarks.servers import say

ROUNDS = 5
LINES = 10_000_000
LARGEST = 50_000_000
QUICK_LINES = 200_000


def main() -> int:
    """Run the comparisons."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few lines, one round; only printed")
    parser.add_argument("--all", action="store_true", help="with tools that are installed for it")
    asked = parser.parse_args()
    quick = asked.quick
    for measure in _comparisons(ISOLATED if asked.all else (), is_quick=quick):
        table = measure()
        say("\n".join(["", *table.lines(), ""]))
        if not quick:
            page.put(table)
    if not quick:
        SVG.write_text(picture(page.get(BACKLOG)), encoding="utf-8")
    return 0


def _comparisons(isolated: Sequence[Isolated], *, is_quick: bool) -> Iterator[Callable[[], Table]]:
    rounds = 1 if is_quick else ROUNDS
    lines, largest = (QUICK_LINES, 2 * QUICK_LINES) if is_quick else (LINES, LARGEST)
    yield lambda: backlog.measure(lines, rounds, isolated)
    yield lambda: small_batch.measure(rounds)
    yield lambda: scaling.measure(lines, rounds, largest)


if __name__ == "__main__":
    sys.exit(main())
