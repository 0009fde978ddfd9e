"""checkers/README.md is correct: its tables are those of the contract, and its examples work."""

import re
from pathlib import Path
from typing import Any

import here
import pyarrow as pa
import pytest
from stories import told

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.tables import FINDINGS, SENT_ON, TABLES
from floodmark.checkers.laws.unit import Family, opened, run_families
from floodmark.checkers.laws.values import values
from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.text.explain import EXPLANATIONS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "checkers"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
TYPE_NAMES = {pa.int32(): "integer", pa.int64(): "bigint", pa.string(): "text", pa.bool_(): "flag"}
ROWS = {
    found[1]: line.split("|")[2]
    for line in PAGE.splitlines()
    if (found := re.match(r"\| `(\w+)`, (a|the)", line)) is not None
}


def type_name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{type_name(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        fields = [f"{each.name} {type_name(each.type)}".removesuffix(" bigint") for each in kind]
        return "{" + ", ".join(fields) + "}"
    return TYPE_NAMES[kind]


def columns(schema: pa.Schema) -> str:
    """As on the page: without run and without bigint."""
    own = [each for each in schema if each.name != "run"]
    return ", ".join(f"`{each.name}` {type_name(each.type)}".removesuffix(" bigint") for each in own)


@pytest.mark.parametrize("name", [*TABLES, "findings"])
def test_every_table_is_listed_with_its_columns(name: str) -> None:
    """In order, with their types."""
    schema = {**TABLES, "findings": FINDINGS}[name]

    assert ROWS[name].strip() == columns(schema)
    assert schema.names[0] == "run"


def test_no_other_table_is_listed() -> None:
    """The tables that units send on to the unit of their run are no part of the contract."""
    assert set(ROWS) == {*TABLES, "findings"}
    assert set(ROWS).isdisjoint(SENT_ON)


def found(path: Path, story: str, *families: Family) -> list[tuple[Any, ...]]:
    """Name, offset and how of what these families find in the folder of this story of the corpus."""
    tables = here.tables_of([open_folder(told(path, story))])
    with opened(tables) as unit:
        run_families(unit, families)
        rows = unit.rows("from claimed order by name").to_pylist()
    return [(row["name"], row["offset"], row["how"]) for row in rows if row["name"] not in names.MADE]


def test_the_checks_of_its_example_work(tmp_path: Path) -> None:
    """They run, and a run made by hand breaks them."""
    code = PAGE.split("```python\n")[3].split("```")[0]
    made: dict[str, Any] = {}
    exec(code, made)
    story = "1 invoke send 7 time=0; 1 ok send 7@0 time=6000000000; 1 acked 8; log n1 7"

    of_example = found(
        tmp_path / "run", story, log, values, lambda unit: unit.find("slow-ack", made["SLOW_ACK"]),
        made["lonely_record"],
    )  # fmt: skip

    assert of_example == [("lonely-record", 0, None), ("slow-ack", 0, "acked after 6.0 s")]
    assert "lonely-record" not in EXPLANATIONS


def test_the_law_of_its_example_works(tmp_path: Path) -> None:
    """An epoch without a leader is found, another is not."""
    code = PAGE.split("```python\n")[2].split("```")[0]
    (select,) = re.findall(r'EPOCH_FROM_NOWHERE = """(.*?)"""', code, re.DOTALL)
    story = "1 acked 1; log 2e4; begin; produce 1"

    law = found(tmp_path / "run", story, log, lambda unit: unit.find("epoch-from-nowhere", select))

    assert {(name, offset) for name, offset, _ in law} == {("epoch-from-nowhere", 1)}
