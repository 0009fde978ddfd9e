"""The judge and the twin agree on many random traces, healthy, rough and damaged, judged in one call."""

import os
from pathlib import Path
from random import Random

import damages_trace_isr
import pytest
from damages_trace import DAMAGES, NEAR_MISSES
from traces import traced
from twin_compare import differences, other_permissions, other_promises, other_sights

CATALOGUE = DAMAGES | NEAR_MISSES | damages_trace_isr.FILES
FOLDERS = int(os.environ.get("FLOODMARK_SOAK", "100"))
SEED = os.environ.get("FLOODMARK_SEED", "1")


def folder_of(number: int, root: Path) -> tuple[str, Path]:
    """What was done to a run (each damage of the catalogue in turn, sometimes one more, every fifth time
    none), and its path."""
    random = Random(f"{SEED} {number}")
    folder = traced(random, rough=number % 5 == 0, clock_error_ns=random.choice((0, 0, 0, 500_000)))
    if random.random() < 0.15:
        folder.run["guarantees"] |= other_promises(random)
    if number % 4 == 3:
        folder.run |= other_sights(random)
    other_permissions(folder, random)
    names = sorted(CATALOGUE)
    asked = [names[number % len(names)]] if number % 5 else []
    asked += random.sample(names, random.choice((0, 0, 0, 1)))
    done = []
    for name in asked:
        try:
            planted = CATALOGUE[name](folder, random)
        except (AssertionError, IndexError, StopIteration, ValueError):
            continue  # an earlier damage removed what this one needs
        done.append(name if planted is not None else f"({name})")
    return ", ".join(done) or "nothing", folder.write(root / f"{number:04}")




@pytest.mark.spark
def test_judge_and_twin_agree_about_traces(tmp_path: Path) -> None:
    """Findings by name, class, permitted_by and count, the names under unknown, and valid are the same."""
    found = differences([folder_of(number, tmp_path) for number in range(FOLDERS)])

    assert found == [], "\n".join(found)
