"""Mutants of the laws, made from their SELECTs: which of them no case of the corpus catches.

    make law-mutants ARGS='[--journal FILE] [FAMILY...]'      a family of laws, run_tables, or gates

Each condition of a SELECT (a conjunct of WHERE, HAVING, QUALIFY, FILTER or of a join, a WHEN) is dropped and
negated, each comparison shifted, each anti join made a semi join and each left join an inner one; DuckDB
parses the SELECT and writes the mutant. All folders are read once. For a mutant those statements run again
that use a table which came out differently. It is caught if the findings differ in what cases expect of them,
or if it fails. What is in the journal is not tried again; what equivalent.txt names changes nothing.
"""

import argparse
import copy
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import corpus
import duckdb
import gate_mutants
import here
import pyarrow as pa
from corpus import Case
from gate_mutants import Driver, first_that_sees

from floodmark.checkers.judge.examples import Row, worst
from floodmark.checkers.judge.layout import RunWork
from floodmark.checkers.judge.passes import read_bag
from floodmark.checkers.judge.run_tables import FACTS, make_tables
from floodmark.checkers.judge.verdicts import verdict_of
from floodmark.checkers.laws.families import FAMILIES
from floodmark.checkers.laws.unit import CLAIMED, Family, Unit
from floodmark.checkers.read import pairing, partitions, repeats
from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.read.replica_rows import REPLICA_ROWS

Node = Any  # of the tree that DuckDB parses a SELECT into
SHIFTED = {"COMPARE_LESSTHAN": "COMPARE_LESSTHANOREQUALTO", "COMPARE_EQUAL": "COMPARE_NOTEQUAL",
           "COMPARE_GREATERTHAN": "COMPARE_GREATERTHANOREQUALTO",
           "COMPARE_DISTINCT_FROM": "COMPARE_NOT_DISTINCT_FROM"}
SHIFTED |= {shifted: plain for plain, shifted in SHIFTED.items()}
JOINS = {"ANTI": "SEMI", "SEMI": "ANTI", "LEFT": "INNER"}
CONDITIONS = ("where_clause", "having", "qualify", "filter")
PLAIN = duckdb.connect()
TRUE = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "",
        "literal": {"kind": "BOOLEAN", "text": "true"}}


def parsed(select: str) -> Node:
    ((tree,),) = PLAIN.execute("select json_serialize_sql(?)", [select]).fetchall()
    return json.loads(tree)


def written(tree: Node) -> str:
    ((select,),) = PLAIN.execute("select json_deserialize_sql(?::json)", [json.dumps(tree)]).fetchall()
    return str(select)


def mutants_of(select: str) -> Iterator[tuple[str, str]]:
    """Each mutant: what was done to which condition, and the SELECT."""
    tree = parsed(select)
    found = list(changes(tree))
    places = {str(path) for path, _, _ in found}
    for path, what, changed in [*found, *(side for side in sides(tree) if str(side[0]) not in places)]:
        mutant = copy.deepcopy(tree)
        *way, last = path
        place = mutant
        for step in way:
            place = place[step]
        place[last] = changed
        yield what, written(mutant)


def changes(node: Node, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str, Node]]:
    """Where something can be changed, what it is, and what stands there then."""
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        here = (*path, key)
        if isinstance(child, (dict, list)):
            yield from changes(child, here)
        if not child:
            continue
        if key in CONDITIONS or (key == "condition" and "join_type" in node):
            yield from of_condition(child, here, None if key != "condition" else TRUE)
        elif key == "when_expr":
            yield here, f"not when: {text(child)}", negated(child)
        elif key == "join_type" and child in JOINS and node["ref_type"] in ("REGULAR", "ASOF"):
            yield here, f"{JOINS[child].lower()} for {child.lower()} join", JOINS[child]
        if isinstance(child, dict) and child.get("class") == "COMPARISON" and child["type"] in SHIFTED:
            yield here, f"shifted: {text(child)}", {**child, "type": SHIFTED[child["type"]]}


def sides(node: Node, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str, Node]]:
    """The same of what is no condition of its own: each side of an AND or OR is dropped."""
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(child, (dict, list)):
            yield from sides(child, (*path, key))
        if isinstance(child, dict) and child.get("class") == "CONJUNCTION":
            for place, what, changed in of_condition(child, (*path, key), None):
                if place == (*path, key):
                    yield place, what, {**changed, "alias": child["alias"]}


def of_condition(node: Node, path: tuple[Any, ...], dropped: Node
                 ) -> Iterator[tuple[tuple[Any, ...], str, Node]]:
    if node["class"] != "CONJUNCTION":
        yield path, f"dropped: {text(node)}", dropped
        if node["class"] != "COMPARISON":
            yield path, f"negated: {text(node)}", negated(node)
        return
    for at, child in enumerate(node["children"]):
        others = [one for number, one in enumerate(node["children"]) if number != at]
        yield path, f"dropped: {text(child)}", {**node, "children": others} if others[1:] else others[0]
        if child["class"] == "CONJUNCTION":
            for _, what, changed in of_condition(child, (), dropped):
                yield (*path, "children", at), what, changed
        elif child["class"] != "COMPARISON":
            yield (*path, "children", at), f"negated: {text(child)}", negated(child)


def negated(node: Node) -> Node:
    if node["type"] == "OPERATOR_NOT":
        return node["children"][0]
    return {"class": "OPERATOR", "type": "OPERATOR_NOT", "alias": "", "children": [node]}


def text(node: Node) -> str:
    tree = parsed("select 1")
    tree["statements"][0]["node"]["select_list"] = [{**node, "alias": ""}]
    return " ".join(written(tree).removeprefix("SELECT ").split())


# -- running them


class Tried(Unit):
    """A unit whose statements can run again with one SELECT changed: only those that it may change."""

    def __init__(self, db: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table], told: Iterable[int]
                 ) -> None:
        """told: the runs of which cases tell the examples."""
        self.kept: dict[str, str] = {}  # the tables and views made so far -> how they are made again
        self.kept_loads: dict[str, pa.Table] = {}
        self.begin()
        super().__init__(db, tables)
        self.load(REPLICA_ROWS, tables[REPLICA_ROWS])
        db.execute(f"create temp table told as select unnest({[*told]}::int[]) as run")
        db.execute("create temp table all_found as from found")

    def begin(self, change: tuple[int, str] | None = None, dirty: Iterable[str] = ()) -> None:
        """Begin a family. change: the position of a SELECT, and what is to stand for it."""
        self.number, self.change, self.trying = -1, change, bool(change or dirty)
        self.dirty = set(dirty)  # the tables that are not as they were kept
        self.selects: list[tuple[str, str]] = []
        self.found: dict[int, Counter[str]] = {}  # by the position of the statement that found them

    def next(self, use: str, select: str) -> str | None:
        """The SELECT to run, or None if it finds what it found before."""
        self.number += 1
        self.selects.append((use, select))
        if self.change and self.change[0] == self.number:
            return self.change[1]
        return select if not self.trying or self.dirty & words_of(select) else None

    def make(self, name: str, select: str, kind: str = "table") -> None:
        if (now := self.next(name, select)) is None:
            return
        if self._loaded.pop(name, None) is not None:
            self._db.unregister(name)
        self._db.execute(f'create or replace temp {kind} "{name}" as {now}')
        if not self.trying:
            self.kept_loads.pop(name, None)
            again = f'from "kept {name}"' if kind == "table" else select
            self.kept[name] = f'create or replace temp {kind} "{name}" as {again}'
            self._db.execute(f'create or replace temp table "kept {name}" as from "{name}"')
            return
        self.dirty.add(name)
        if not self.differs(name):
            self._db.execute(self.kept[name])
            self.dirty.discard(name)

    def load(self, name: str, table: pa.Table) -> None:
        super().load(name, table)
        self.dirty.discard(name)
        if not table.equals(self.kept_loads.setdefault(name, table)):
            self.dirty.add(name)

    def view(self, name: str, select: str) -> None:
        self.make(name, select, "view")

    def extend(self, name: str, select: str) -> None:
        raise NotImplementedError("only where a unit is big")

    def find(self, name: str, select: str) -> None:
        # What is found there may only be claimed where the log start is known.
        if (now := self.next(f"find {name}", f"{select} -- log_start_unknown")) is not None:
            super().find(name, now)
            self.take()

    def add(self, findings: pa.Table) -> None:
        self.number += 1
        self.selects.append(("add", ""))
        super().add(findings)
        self.take()

    def rows(self, select: str) -> pa.Table:
        now = self.next("rows", select)
        return super().rows(select if now is None else now)

    def take(self) -> None:
        """Take what was just found, as far as cases expect it."""
        rows = self._db.execute(
            f"""select f.run, name, how[:40], f.permit, f.partition, f."offset", case when t.run > -1
                then {{'value': value, 'nodes': nodes, 'ops': ops, 'seen': seen, 'process': process}} end
            from ({CLAIMED}) f left join told t using (run)""").fetchall()
        self.found[self.number] = Counter(map(json.dumps, rows))
        self.forget()

    def forget(self) -> None:
        """Keep what was found for `worst`, and begin again."""
        if not self.trying:
            self._db.execute("insert into all_found from found")
        self._db.execute("delete from found")

    def worst(self) -> list[Row]:
        """What a verdict shows of all that was found in the usual way."""
        self._db.execute("insert into found from all_found")
        self.view("claimed", CLAIMED)
        rows = worst(self)
        self._db.execute("delete from found")
        return rows

    def differs(self, name: str) -> bool:
        one, other = f'"{name}"', f'"kept {name}"'
        ((rows,),) = self._db.execute(f"""select (select count(*) from (from {one} except all from {other}))
            + (select count(*) from (from {other} except all from {one}))""").fetchall()
        return bool(rows)

    def restore(self) -> None:
        self._db.execute("delete from found")
        for name in self.dirty:
            if name in self.kept:
                self._db.execute(self.kept[name])
            else:
                super().load(name, self.kept_loads[name])


def words_of(select: str) -> set[str]:
    return set(re.findall(r"\w+", select))


@contextmanager
def tried(tables: Mapping[str, pa.Table], told: Iterable[int]) -> Iterator[Tried]:
    with duckdb.connect(config={"threads": 1}) as db:
        db.execute("set timezone = 'UTC'; attach ':memory:' as compressed (compress); use compressed")
        yield Tried(db, tables, told)


def results(
    tables: Mapping[str, pa.Table], told: Iterable[int], families: Sequence[Family], done: set[str],
    only: Sequence[str],
) -> Iterator[tuple[str, list[int] | str]]:
    """Each mutant of these families: the runs in which it is seen, or how it failed."""
    with tried(tables, told) as unit:
        before = []
        for family in families:
            unit.begin()
            family(unit)
            words = words_of(" ".join(select for _, select in unit.selects))
            before.append((unit.found, unit.selects, words))
        for place, family in enumerate(families):
            if only and family.__name__ not in only:
                continue
            for number, (use, select) in enumerate(before[place][1]):
                for at, (what, mutant) in enumerate(mutants_of(select) if select else ()):
                    ident = f"{family.__name__} {number} {use} {at} {what}"
                    if ident in done:
                        continue
                    unit.begin((number, mutant))
                    seen: list[int] | str = []
                    try:
                        for later in range(place, len(families)):
                            found, _, words = before[later]
                            if later > place and not unit.dirty & words:
                                continue
                            if later > place:
                                unit.begin(dirty=unit.dirty)
                            families[later](unit)
                            if differ := {row for at, now in unit.found.items()
                                          for row in (now - found[at]) + (found[at] - now)}:
                                seen = sorted({json.loads(row)[0] for row in differ})
                                break
                    except Exception as error:
                        seen = f"{type(error).__name__}: {error}"[:100]
                    yield ident, seen
                    unit.restore()


def of_laws(judged: Sequence[tuple[Case, Path]], done: set[str], only: Sequence[str]
            ) -> Iterator[tuple[str, list[int] | str]]:
    """The mutants of SELECTs, of these families."""
    if only and {*only} <= {"gates", "first_pass"}:
        return
    works = [RunWork.of(run, open_folder(path)) for run, (_, path) in enumerate(judged)]
    tables, runs = here.tables_of([open_folder(path) for _, path in judged]), read_bag(works)[1]
    told = [run for run, (case, _) in enumerate(judged) if case.tells_examples]

    def run_tables(unit: Unit) -> None:
        """What may be claimed and what is permitted, as a family."""
        make_tables(unit, {name: tables[name] for name in FACTS})

    def answers(unit: Unit) -> None:
        unit.make("answers", pairing._ANSWERS.replace("from given", "from lines"))

    def examples(unit: Tried) -> None:
        """What is shown of the findings, and who is to blame, as far as a case expects it."""
        of_runs = defaultdict[int, list[Row]](list)
        for row in unit.worst():
            of_runs[row["run"]].append(row)
        unit.found[0] = Counter()
        for run, rows in of_runs.items():
            verdict, case = verdict_of(runs[run], [rows], ()), judged[run][0]
            unit.found[0][json.dumps([run, corpus.said(verdict), corpus.unsaid(case, verdict)])] += 1

    yield from results(tables, told, [run_tables, answers, *FAMILIES, examples], done, only)


def of_first_pass(judged: Sequence[tuple[Case, Path]], done: set[str]) -> Iterator[tuple[str, list[int]]]:
    """The mutants of SELECTs over what was read, before there is a unit."""
    drivers = [Driver(number, case, path) for number, (case, path) in enumerate(judged)]
    for module, name, step in ((pairing, "_WRONG", Driver.across), (repeats, "_BY_VALUE", Driver.across),
                               (repeats, "_BY_RUN", Driver.across), (partitions, "_LEADERS", Driver.derived)):
        usual = getattr(module, name)
        for at, (what, mutant) in enumerate(mutants_of(usual)):
            ident = f"first_pass {name} {at} {what}"
            if ident not in done:
                setattr(module, name, mutant)
                seen = first_that_sees(drivers, step)
                setattr(module, name, usual)
                yield ident, [] if seen is None else [seen]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--journal", type=Path, default=Path("law_mutants.jsonl"))
    options.add_argument("families", nargs="*")
    asked = options.parse_args()
    tried_before = asked.journal.read_text().splitlines() if asked.journal.exists() else []
    done: dict[str, list[int] | str] = dict(map(json.loads, tried_before))
    with asked.journal.open("a") as journal, TemporaryDirectory() as root:
        written = [(case, case.write(Path(root) / str(number))) for number, case in enumerate(corpus.cases())]
        judged = [(case, path) for case, path in written if open_folder(path).judged]
        others = {"first_pass": of_first_pass, "gates": gate_mutants.results}
        wanted = [one for name, one in others.items() if name in (asked.families or others)]
        for ident, seen in chain(of_laws(judged, {*done}, asked.families),
                                 *(results_of(judged, {*done}) for results_of in wanted)):
            done[ident] = seen
            print(json.dumps([ident, seen]), file=journal, flush=True)
    unseen = [ident for ident, seen in done.items() if not seen]
    never = [ident for ident in unseen if not any(re.search(one, ident) for one in equivalent())]
    print(*never, f"{len(done)} mutants; no case sees {len(unseen)}, of which "
          f"{len(unseen) - len(never)} change nothing", sep="\n")  # fmt: skip


def equivalent() -> list[str]:
    lines = Path(__file__).with_name("equivalent.txt").read_text().splitlines()
    return [line.partition(" # ")[0] for line in lines if not line.startswith("#")]


if __name__ == "__main__":
    main()
