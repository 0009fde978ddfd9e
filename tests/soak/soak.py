"""`make soak`: judges random run folders by the ten thousand, as soaking.py says.

    python tests/soak/soak.py --histories 20000 --mutated 100000 --seed 1      all of it (tests/support is
                                                                               on PYTHONPATH)
    python tests/soak/soak.py --only mutated --from 41000 --mutated 500        some of it, or on from there

    partitions  one run of a million partitions, one of them damaged: time and memory

Exit code 1 if anything is wrong.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from soak_wide import wide
from soaking import Soak, memory

from floodmark.checkers.spark.session import context

CAMPAIGNS = {"histories": 20_000, "mistyped": 10_000, "mutated": 100_000}
PARTITIONS = 1_000_000
BATCH = 1000  # folders in one call


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for campaign, count in CAMPAIGNS.items():
        parser.add_argument(f"--{campaign}", type=int, default=count, metavar="N")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="NUMBER")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, metavar="N")
    parser.add_argument("--only", default=",".join((*CAMPAIGNS, "partitions")))
    parser.add_argument("--keep", type=Path, help="where folders go that something is wrong with")
    options = parser.parse_args()
    kept = options.keep or Path(tempfile.gettempdir()) / f"floodmark-soak-{options.seed}"
    kept.mkdir(parents=True, exist_ok=True)
    began, tallies = time.monotonic(), []
    context()
    with tempfile.TemporaryDirectory(prefix="floodmark-soak-") as work:
        soak = Soak(work=Path(work), kept=kept, seed=options.seed, batch=options.batch)
        for campaign in CAMPAIGNS:
            if campaign in options.only.split(","):
                tallies.append(soak.run(campaign, options.first, getattr(options, campaign)))
        asked = "partitions" in options.only.split(",")
        failed = asked and not many_partitions(Path(work), options.partitions)
    print(f"seed {options.seed}, batches of {options.batch}, {time.monotonic() - began:,.0f} s")
    for tally in tallies:
        print(tally.line())
    folders = [folder for tally in tallies for folder in tally.kept]
    print(*(f"kept: {folder}" for folder in folders), sep="\n")
    return 1 if folders or failed else 0


def many_partitions(work: Path, partitions: int) -> bool:
    """Whether the one damage is found, and nothing else."""
    from floodmark.checkers.judge.job import SparkJudge

    folder, began = wide(work / "wide", partitions=partitions), time.monotonic()
    (verdict,) = SparkJudge().judge([folder])
    found = [(one.name, one.klass, one.count) for one in verdict.findings]
    good = found == [("lost-write", "bug", 1)] and not verdict.unknown
    print(f"partitions: {partitions:,} in {time.monotonic() - began:,.0f} s, {memory()}: "
          f"{'nothing wrong' if good else f'WRONG {found} {verdict.unknown[:3]}'}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
