"""How many random cases a property is tried on: few in `make test`, all in `make soak`."""

import os

ALL = "FLOODMARK_ALL_CASES"  # environment variable: any value but the empty one asks for all


def cases(every: int, *, few: int) -> int:
    return every if os.environ.get(ALL) else few
