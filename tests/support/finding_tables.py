"""Makes the tables of histories/README.md about findings from their records and words: `make findings`.

A table is replaced where its head is; everything else on the page stays.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from floodmark.checkers.laws.finding_names import FILES, LAWS, MADE, OF_THE_TRACE, UNFIT, If, unknown_if
from floodmark.checkers.text.words import WORDS

PAGE = Path(__file__).parents[2] / "histories" / "README.md"


def with_tables(page: str) -> str:
    """The page with its tables made anew."""
    of_the_trace, others = OF_THE_TRACE, [name for name in LAWS if name not in (*OF_THE_TRACE, UNFIT)]
    for head, rows in (
        ("| finding | when |", map(meaning, others)),
        ("| finding of the trace | when |", map(meaning, of_the_trace)),
        ("| if | these are unknown |", filter(None, map(row_of, If))),
        ("| check | needs |", needs()),
    ):
        table = "\n".join([head, "|---|---|", *(f"| {left} | {right} |" for left, right in rows)])
        (old,) = re.findall(rf"^{re.escape(head)}\n(?:\|.*\n)+", page, re.MULTILINE)
        page = page.replace(old, f"{table}\n")
    return page


def meaning(name: str) -> tuple[str, str]:
    return f"`{name}`", WORDS[name].get("exactly", WORDS[name]["means"])


def row_of(row: If) -> tuple[str, str]:
    """What makes checks unknown, and which: besides, those of the trace, and those that claim nothing."""
    names = unknown_if(row)
    besides = [name for name in unknown_if(row, traced=True) if name not in names]
    silent = [name for name, law in LAWS.items() if law.silent & row]
    cell = listed(names or silent)
    if besides:
        cell += f"; with a trace also {listed(besides)}"
    if silent:
        whose = "They" if {*silent} >= {*names, *besides} else listed(silent)
        cell += f". {whose} then find nothing: what is missing might explain it"
    return WORDS["what makes checks unknown"][str(row.name).lower()], cell


def listed(names: Sequence[str]) -> str:
    rest = [name for name in MADE if name not in (*names, *OF_THE_TRACE)]
    if {*names} == {*OF_THE_TRACE}:
        return "every check from the trace"
    all_but = f"every check without a trace but {', '.join(rest)}"
    return all_but if len(rest) < len(MADE) / 4 else ", ".join(names)


def needs() -> Iterable[tuple[str, str]]:
    """Each check that not every system can show, with the files and events that it needs."""
    for name, law in LAWS.items():
        if law.needs:
            files, events = sorted(law.needs & FILES), sorted(law.needs - FILES)
            besides = ", or an imported history" if law.imports_show else ""
            yield f"`{name}`", ", ".join([*files, *(f"`{event}`" for event in events)]) + besides


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
