"""Many tales judged in one call, by the product's own code without Spark (test_checkers_spark_same.py has
Spark judge all tales of all modules, and compares).

TALES = Tales()

@TALES.tale("lost-write bug 1")             what must be found: NAME CLASS-OR-CAUSE COUNT, comma-separated
def an_acked_record_is_gone(tale): ...      the function changes a healthy Tale and may return another one

verdicts = TALES.fixture()                  a module-scoped fixture: name -> Verdict, all in one call
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import here
import pytest
import twin
from folders import Tale
from twin_compare import as_dict, spoken

from floodmark.harness.verdict import Verdict

Teller = Callable[[Tale], Tale | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One tale with what must be said of it."""

    teller: Teller
    found: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(slots=True)
class Tales:
    told: dict[str, Told] = field(default_factory=dict)

    def tale(self, *found: str, unknown: Iterable[str] = ()) -> Callable[[Teller], Teller]:
        """Registers a tale by its function's name."""

        def register(teller: Teller) -> Teller:
            assert teller.__name__ not in self.told
            self.told[teller.__name__] = Told(
                teller=teller, found=tuple(sorted(found)), unknown=tuple(sorted(unknown))
            )
            return teller

        return register

    def write(self, root: Path) -> list[Path]:
        """A folder a tale, in their order."""
        return [self.write_one(root, name) for name in self.told]

    def write_one(self, root: Path, name: str) -> Path:
        tale = Tale()
        return (self.told[name].teller(tale) or tale).write(root / name)

    def judge(self, root: Path) -> dict[str, Verdict]:
        return dict(zip(self.told, here.judge(self.write(root)), strict=True))

    def fixture(self) -> Any:
        @pytest.fixture(scope="module", name="verdicts")
        def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
            return self.judge(tmp_path_factory.mktemp("tales"))

        return verdicts

    def cases(self) -> list[str]:
        return list(self.told)

    def check(self, name: str, verdicts: dict[str, Verdict]) -> None:
        """Findings, unknown names and valid are all as told."""
        told, verdict = self.told[name], verdicts[name]
        found = sorted(f"{one.name} {one.permitted_by or one.klass} {one.count}" for one in verdict.findings)
        unknown = sorted({check for one in verdict.unknown for check in one.names})
        valid: bool | str = "unknown" if told.unknown else True
        if any(" bug " in one for one in told.found):
            valid = False

        assert (list(told.found), list(told.unknown), valid) == (found, unknown, verdict.valid)

    def check_twin(self, name: str, verdicts: dict[str, Verdict], root: Path) -> None:
        """The twin says the same of the tale: name, class, permitted_by, count, and what is unknown."""
        tale = Tale()
        folder = (self.told[name].teller(tale) or tale).write(root)
        assert spoken(twin.judge(folder)) == spoken(as_dict(verdicts[name]))
