"""Judges many tales in one call, by the product's code without Spark. (tests/corpus has what text can tell.)

TALES = Tales() @TALES.tale("lost-write bug 1")             what must be found: NAME CLASS-OR-CAUSE COUNT,
comma-separated def an_acked_record_is_gone(tale): ...      the function changes a healthy Tale and may return
another one

verdicts = TALES.fixture()                  a module-scoped fixture: name -> Verdict, all in one call
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import here
import pytest
from folders import Tale

from floodmark.harness.verdict import Verdict

Teller = Callable[[Tale], Tale | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One tale with its expected findings."""

    teller: Teller
    found: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(slots=True)
class Tales:
    by_name: dict[str, Case] = field(default_factory=dict)

    def tale(self, *found: str, unknown: Iterable[str] = ()) -> Callable[[Teller], Teller]:
        """Registers a tale by its function's name."""

        def register(teller: Teller) -> Teller:
            assert teller.__name__ not in self.by_name
            self.by_name[teller.__name__] = Case(
                teller=teller, found=tuple(sorted(found)), unknown=tuple(sorted(unknown))
            )
            return teller

        return register

    def write(self, root: Path) -> list[Path]:
        """Writes one folder for each tale, in their order."""
        tales = {name: Tale() for name in self.by_name}
        return [(self.by_name[name].teller(tale) or tale).write(root / name) for name, tale in tales.items()]

    def judge(self, root: Path) -> dict[str, Verdict]:
        return dict(zip(self.by_name, here.judge(self.write(root)), strict=True))

    def fixture(self) -> Any:
        @pytest.fixture(scope="module", name="verdicts")
        def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
            return self.judge(tmp_path_factory.mktemp("tales"))

        return verdicts

    def cases(self) -> list[str]:
        return list(self.by_name)

    def check(self, name: str, verdicts: dict[str, Verdict]) -> None:
        """Findings, unknown names and valid are all as expected."""
        case, verdict = self.by_name[name], verdicts[name]
        found = sorted(f"{one.name} {one.permitted_by or one.klass} {one.count}" for one in verdict.findings)
        unknown = sorted({check for one in verdict.unknown for check in one.names})
        valid: bool | str = "unknown" if case.unknown else True
        if any(" bug " in one for one in case.found):
            valid = False

        assert (list(case.found), list(case.unknown), valid) == (found, unknown, verdict.valid)
