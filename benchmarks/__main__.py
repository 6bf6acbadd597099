"""``make bench``: Tally beside its peers, and the tables and the picture of the documentation.

Runs the comparisons one after the other. Each result replaces its table in ``docs/performance.md``;
at last the picture is drawn from it. With ``--quick`` few lines are counted in one round, which
shows that everything works and nothing else: the tables are printed, and the page stays as it is.
With ``--all`` the backlog is counted by tools too that are installed for it.
"""

import argparse
import sys
from itertools import chain

from benchmarks import backlog, page, scaling, small_batch
from benchmarks.page import say
from benchmarks.picture import BACKLOG, SVG, picture

QUICK_LINES = 200_000


def main() -> int:
    """Run the comparisons."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few lines, one round; only printed")
    parser.add_argument("--all", action="store_true", help="with tools that are installed for it")
    asked = parser.parse_args()
    rounds = {"rounds": 1} if asked.quick else {}
    lines = {**rounds, "lines": QUICK_LINES} if asked.quick else {}
    largest = {**lines, "largest": 2 * QUICK_LINES} if asked.quick else {}
    for table in chain(
        backlog.measure(**lines, peers=asked.all),
        small_batch.measure(**rounds),
        scaling.measure(**largest),
    ):
        say(f"\n{table}\n")
        if not asked.quick:
            page.put(table)
    if not asked.quick:
        SVG.write_text(picture(page.get(BACKLOG)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
