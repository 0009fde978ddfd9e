"""Groups small runs into bags, one for each task, and separates the runs that are too big for a bag."""

from collections.abc import Sequence

from floodmark.checkers.judge.whole_runs import RunWork

# Chosen, not measured closely: a run of 70 MB is judged much quicker by one task than split up.
BIG_BYTES = 128 << 20
BAG_BYTES = 64 << 20
BAG_RUNS = 500  # one task holds the tables of all of them, and returns all their answers


def bags_of(
    works: Sequence[RunWork], cores: int, big_bytes: int | None = None
) -> tuple[list[list[RunWork]], list[RunWork]]:
    """Split the runs into bags, the same number for each core, heaviest runs first; and the runs that are
    split over tasks instead: those of more than big_bytes (None: BIG_BYTES)."""
    most = BIG_BYTES if big_bytes is None else big_bytes
    small = sorted((work for work in works if not work.far and work.size <= most), key=by_size)
    big = [work for work in works if work.far or work.size > most]
    total = sum(work.size for work in small)
    count = min(len(small), max(cores, -(-total // BAG_BYTES), -(-len(small) // BAG_RUNS)))
    bags: list[list[RunWork]] = [[] for _ in range(count)]
    loads = [0] * count
    for work in small:
        lightest = loads.index(min(loads))
        bags[lightest].append(work)
        loads[lightest] += work.size + 1
    return bags, big


def by_size(work: RunWork) -> tuple[int, int]:
    return -work.size, work.run
