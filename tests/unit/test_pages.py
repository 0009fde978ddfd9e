"""The project's pages and pictures: linked files exist, tables are the code's, examples work."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import here
import pyarrow as pa
import pytest
from readme import README, ROOT
from stories import told

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.tables import FINDINGS, SENT_ON, TABLES
from floodmark.checkers.laws.unit import Family, opened, run_families
from floodmark.checkers.laws.values import values
from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.text.explain import EXPLANATIONS

PICTURES = ROOT / "histories" / "pictures"
FILES = sorted(PICTURES.glob("*.svg"))
BYTES_AT_MOST = 60_000
SVG = "{http://www.w3.org/2000/svg}"


FOLDERS = ("checkers", "docker", "harness", "histories", "nemesis")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_linked_file_exists(page: Path) -> None:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_shows_each_picture_in_light_and_dark() -> None:
    text = README.read_text(encoding="utf-8")
    shown = set(re.findall(r'histories/pictures/([\w-]+\.svg)', text))

    assert shown == {path.name for path in FILES}
    assert {name.replace("-light", "-dark") for name in shown if "light" in name} == {
        name for name in shown if "dark" in name}
    pairs = r'<picture>\n  <source media=.* srcset=.*-dark\.svg">\n  <img src=.* alt="\w'
    assert len(re.findall(pairs, text)) == 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_picture_is_small_and_loads_nothing(path: Path) -> None:
    picture = path.read_text(encoding="utf-8")

    assert len(picture.encode()) < BYTES_AT_MOST
    root = ElementTree.fromstring(picture)
    assert {one.tag for one in root.iter()} & {f"{SVG}script", f"{SVG}image", f"{SVG}foreignObject"} == set()
    names = {name for one in root.iter() for name in one.attrib}
    assert not [name for name in names if name.endswith("href") or name.startswith("on")]
    assert "url(http" not in picture
    assert "@import" not in picture


# -- checkers/README.md: its tables are those of the contract, and its examples work -------------------------


PAGE = (ROOT / "checkers" / "README.md").read_text(encoding="utf-8")
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


def test_every_table_is_listed_with_its_columns_and_no_other() -> None:
    """In order, with their types. Those that units send on to the unit of their run are no part of it."""
    every = {**TABLES, "findings": FINDINGS}
    assert {name: cell.strip() for name, cell in ROWS.items()} == {
        name: columns(schema) for name, schema in every.items()}
    assert {schema.names[0] for schema in every.values()} == {"run"}
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
