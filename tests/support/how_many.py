"""How many random cases a property is tried on: few in `make test`, all of them in `make soak`."""

import os

ALL = "FLOODMARK_ALL_CASES"  # the environment's: whatever is not empty asks for all


def cases(every: int, *, few: int) -> int:
    return every if os.environ.get(ALL) else few
