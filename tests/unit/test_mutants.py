"""The mutants of tests/mutants still fit the product: each old text occurs once, each named test exists."""

import sys
from pathlib import Path

MUTANTS = Path(__file__).resolve().parents[1] / "mutants"


def test_every_mutant_fits() -> None:
    sys.path.insert(0, str(MUTANTS))
    try:
        import mutants
    finally:
        sys.path.remove(str(MUTANTS))

    found = mutants.load()
    mutants.check(found)
    assert len(found) >= 30
