"""Compares the judge with what is known to be right: saved verdicts, the twin, and the tales of the tests.

    python tests/support/beside.py --names lost-write,unseen folders FOLDER...      with their verdict.json
    python tests/support/beside.py --names lost-write,unseen histories 300 SEED     with the twin
    python tests/support/beside.py --names lost-write mistyped 300 SEED   the same, one value has a wrong type
    python tests/support/beside.py --names lost-write mutated 300 SEED    folders that the soak damaged
    python tests/support/beside.py --names lost-write tales tests/unit/test_checkers_durability.py...

Every group of the given names (of all names without --names) must be equal: name, class, permitted_by, count;
with --examples also what the verdict says of each example, except its text and event.

The twin may know more or less than the judge about a damaged folder: a difference there is a question, not an
error.
"""

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import here
import soak_work
from judging import Tales

from floodmark.checkers.judge.report import as_json

Group = tuple[str, str, str | None, int]
AT_ONCE = 100
MAKERS = {
    "histories": soak_work.histories, "mistyped": soak_work.mistyped, "mutated": soak_work.mutated,
}  # fmt: skip


def groups(findings: Iterable[Any], names: frozenset[str]) -> list[Group]:
    """The groups of findings of these names, or of all names if none is given."""
    rows = [
        (one["name"], one["class"], one["permitted_by"] or "-", one["count"])
        if isinstance(one, dict)
        else (one[0], one[1], one[2] or "-", one[3])
        for one in findings
    ]
    return sorted(one for one in rows if not names or one[0] in names)


def compare(
    what: str, wanted: Iterable[Any], verdict: Any, names: frozenset[str], examples: bool = False
) -> bool:
    found, wanted = as_json(verdict)["findings"], list(wanted)
    mine, right = groups(found, names), groups(wanted, names)
    if examples and mine == right and all("examples" in one for one in wanted):
        mine, right = examples_of(found, names), examples_of(wanted, names)
    if mine != right:
        print(f"DIFFERS {what}\n    right {right}\n    mine  {mine}")
        if verdict.failure:
            print(verdict.failure)
    return mine == right


def examples_of(findings: Iterable[Any], names: frozenset[str]) -> list[Any]:
    return sorted(
        (one["name"], one["class"], str(one["permitted_by"]), [
            {key: value for key, value in example.items() if key not in ("text", "event")}
            for example in one["examples"]
        ])
        for one in findings
        if not names or one["name"] in names
    )  # fmt: skip


def of_folders(folders: list[Path], names: frozenset[str], examples: bool) -> list[bool]:
    same = []
    for at in range(0, len(folders), AT_ONCE):
        some = folders[at : at + AT_ONCE]
        for folder, verdict in zip(some, here.judge(some), strict=True):
            there = [folder / name for name in ("verdict.json", "expected.json") if (folder / name).exists()]
            wanted = json.loads(there[0].read_text())["findings"]
            same.append(compare(str(folder), wanted, verdict, names, examples))
    return same


def of_soak(campaign: str, count: int, seed: str, names: frozenset[str]) -> list[bool]:
    same = []
    for first in range(0, count, AT_ONCE):
        with tempfile.TemporaryDirectory() as root:
            batch = MAKERS[campaign](seed, first, min(AT_ONCE, count - first), Path(root))
            for one, verdict in zip(batch, here.judge([one.path for one in batch]), strict=True):
                story = f"{seed} {one.number}: {one.story}"
                wanted = one.wanted
                if wanted is None:
                    wanted = soak_work.beside_twin(one.number, story, one.path).wanted
                if isinstance(wanted, str):
                    print(f"{story}: {wanted}")
                    continue
                same.append(compare(story, findings_of(wanted), verdict, names))
    return same


def findings_of(wanted: Any) -> list[Any]:
    """Findings as twin_compare.spoken gives them."""
    return list(wanted["findings"] if isinstance(wanted, dict) else wanted[1])


def of_tales(modules: list[Path], names: frozenset[str]) -> list[bool]:
    same = []
    for path in modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for tales in (one for one in vars(module).values() if isinstance(one, Tales)):
            with tempfile.TemporaryDirectory() as root:
                folders = tales.write(Path(root))
                for (name, case), verdict in zip(tales.by_name.items(), here.judge(folders), strict=True):
                    same.append(compare(f"{path.stem}::{name}", map(wanted_of, case.found), verdict, names))
    return same


def wanted_of(found: str) -> tuple[str, str, str | None, int]:
    """Reads NAME CLASS-OR-CAUSE COUNT, as a tale states it."""
    name, *cause, count = found.split(" ")
    by = " ".join(cause)
    return (name, "bug", None, int(count)) if by == "bug" else (name, "permitted", by, int(count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", default="")
    parser.add_argument("--examples", action="store_true", help="beside saved verdicts")
    parser.add_argument("what", choices=("folders", "tales", *MAKERS))
    parser.add_argument("which", nargs="+")
    asked = parser.parse_args()
    names, began = frozenset(filter(None, asked.names.split(","))), time.perf_counter()
    if asked.what in MAKERS:
        same = of_soak(asked.what, int(asked.which[0]), asked.which[1], names)
    elif asked.what == "folders":
        same = of_folders([Path(one) for one in asked.which], names, asked.examples)
    else:
        same = of_tales([Path(one) for one in asked.which], names)
    print(f"{same.count(False)} of {len(same)} differ, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
