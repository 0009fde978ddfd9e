"""Mutants of what Python decides of a run before its laws run (what is read, what is promised, reasons,
gates, acts, deaths): which of them no case of the corpus catches.

    make law-mutants ARGS='gates [--journal FILE]'

In each function of MODULES each condition is negated, each side of an `and`, `or`, `&` and `|` dropped, each
comparison shifted. The function gets the mutant's code, and the cases are read again, or the driver derives
again what it knows of each. Where that differs the case is judged: the mutant is caught if it does not find
what the case expects.
"""

import ast
import copy
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import corpus
import here
from corpus import Case

from floodmark.checkers.judge import acts, deaths, preconditions, reasons, run_tables, runs
from floodmark.checkers.judge.layout import Layout, RunWork
from floodmark.checkers.judge.passes import across_partitions, derive_run, parsed, read_as
from floodmark.checkers.judge.verdicts import verdict_of
from floodmark.checkers.read import facts, folder, guarantees, observed, tables
from floodmark.checkers.read.folder import open_folder
from floodmark.harness.verdict import Verdict

MODULES: Sequence[ModuleType] = (tables, facts, folder, guarantees, observed, reasons, deaths, acts, runs,
                                 run_tables, preconditions)
SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}  # fmt: skip
SHIFTED |= {shifted: plain for plain, shifted in SHIFTED.items()}
Change = Callable[[Any], None]  # of a node of a function's tree
Step = Callable[["Driver"], Any]


def changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """What can be changed in this node, and how."""
    if isinstance(node, ast.BoolOp):
        for at, side in enumerate(node.values):
            yield f"dropped: {ast.unparse(side)}", lambda one, at=at: drop(one.values, at)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        yield f"dropped: {ast.unparse(node.left)}", lambda one: setattr(one, "left", one.right)
        yield f"dropped: {ast.unparse(node.right)}", lambda one: setattr(one, "right", one.left)
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        yield f"dropped: {ast.unparse(node)}", lambda one: setattr(one, "value", loaded(one.target))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        yield f"negated: {ast.unparse(node)}", lambda one: setattr(one, "operand", copy.copy(one))
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SHIFTED:
        yield f"shifted: {ast.unparse(node)}", lambda one: shift(one.ops)
    elif isinstance(node, (ast.If, ast.IfExp)) and is_plain(node.test):
        yield f"negated: {ast.unparse(node.test)}", lambda one: setattr(one, "test", negated(one.test))
    elif isinstance(node, ast.comprehension):
        for at, test in enumerate(node.ifs):
            yield f"dropped: {ast.unparse(test)}", lambda one, at=at: one.ifs.pop(at)
            if is_plain(test):
                yield f"negated: {ast.unparse(test)}", lambda one, at=at: negate(one.ifs, at)


def is_words(node: ast.AST) -> bool:
    """Whether it only chooses words."""
    chosen = node.orelse if isinstance(node, ast.IfExp) else None
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(chosen, "value", None), str)


def is_plain(test: ast.expr) -> bool:
    """Whether no part of it is changed already."""
    return not isinstance(test, (ast.BoolOp, ast.UnaryOp, ast.Compare))


def loaded(target: ast.expr) -> ast.expr:
    """What is assigned to, as it is read."""
    return ast.parse(ast.unparse(target), mode="eval").body


def negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(op=ast.Not(), operand=test)


def negate(tests: list[ast.expr], at: int) -> None:
    tests[at] = negated(tests[at])


def drop(values: list[ast.expr], at: int) -> None:
    values.pop(at)
    if len(values) == 1:
        values.append(values[0])


def shift(ops: list[ast.cmpop]) -> None:
    ops[0] = SHIFTED[type(ops[0])]()


def functions() -> Iterator[tuple[str, FunctionType, ast.FunctionDef, dict[str, Any]]]:
    """Each function and method of MODULES: its name, itself, its tree, and what its module has."""
    for module in MODULES:
        tree = ast.parse(inspect.getsource(module))
        for node in tree.body:
            of_class = vars(vars(module)[node.name]) if isinstance(node, ast.ClassDef) else vars(module)
            for one in node.body if isinstance(node, ast.ClassDef) else [node]:
                if isinstance(one, ast.FunctionDef):
                    there = of_class[one.name]
                    there = inspect.unwrap(there.fget if isinstance(there, property) else there)
                    yield f"{module.__name__.split('.')[-1]}.{one.name}", there, bare(one), dict(vars(module))


def bare(tree: ast.FunctionDef) -> ast.FunctionDef:
    """The function without decorators and types."""
    tree.decorator_list = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(value=None)
    return tree


def mutants(tree: ast.FunctionDef, names: dict[str, Any]) -> Iterator[tuple[str, CodeType]]:
    """Each mutant of the function: what was done, and its code."""
    words = {id(part) for node in ast.walk(tree) if is_words(node) for part in ast.walk(node)}
    for number, node in enumerate(ast.walk(tree)):
        for what, change in changes(node) if id(node) not in words else ():
            mutant = copy.deepcopy(tree)
            change([*ast.walk(mutant)][number])
            module = ast.fix_missing_locations(ast.Module(body=[mutant], type_ignores=[]))
            exec(compile(module, "mutant", "exec"), names)
            yield f"{number} {' '.join(what.split())[:90]}", names[tree.name].__code__


class Driver:
    """What is read of a case's files, and what the driver derives from that."""

    def __init__(self, number: int, case: Case, path: Path) -> None:
        self.number, self.case, self.path = number, case, path
        self.work = RunWork.of(0, open_folder(path), corpus.RANGE_BYTES)
        self.sent = self.read()
        self.first = self.across()
        self.usual = {step: step(self) for step in STEPS}

    def read(self) -> Any:
        ranges = ((one, None) for one in self.work.ranges)
        return [*parsed(Layout.of_bag([self.work]), read_as([self.work]), ranges)]

    def across(self) -> Any:
        return [*across_partitions(self.sent)]

    def derived(self) -> Any:
        run = derive_run(RunWork(run=0, folder=open_folder(self.path), ranges=(), size=0), self.first)
        assert isinstance(run, runs.Run)
        return verdict_of(run, [], []), run_tables.facts_of(0, run)

    def differs(self, step: Step) -> bool:
        try:
            return bool(step(self) != self.usual[step])
        except Exception:
            return True

    def misses(self, verdict: Verdict) -> bool:
        """Whether the verdict is not what the case expects."""
        return corpus.said(verdict) != self.case.expected or corpus.unsaid(self.case, verdict) != []


STEPS = (Driver.read, Driver.across, Driver.derived)


def first_that_sees(drivers: Iterable[Driver], step: Step = Driver.derived) -> int | None:
    """The number of a case that does not find what it expects: one is judged alone, then more and more."""
    differing = (one for one in drivers if one.differs(step))
    for most in (1, 7, 56, None):
        some = [*islice(differing, most)]
        try:
            verdicts = here.judge([one.path for one in some], range_bytes=corpus.RANGE_BYTES) if some else []
        except Exception:  # where no failure is expected, and the whole call ends
            return some[0].number
        for one, verdict in zip(some, verdicts, strict=True):
            if one.misses(verdict):
                return one.number
    return None


def callers(drivers: Sequence[Driver]) -> dict[CodeType, list[Driver]]:
    """The cases for which each code runs."""
    found: dict[CodeType, dict[int, Driver]] = defaultdict(dict)
    for driver in drivers:
        sys.setprofile(lambda frame, *_, one=driver: found[frame.f_code].setdefault(one.number, one))
        for step in STEPS:
            step(driver)
        sys.setprofile(None)
    return {code: [*some.values()] for code, some in found.items()}


def results(judged: Sequence[tuple[Case, Path]], done: set[str]) -> Iterator[tuple[str, list[int]]]:
    """Each mutant, and the first case that sees it."""
    drivers = [Driver(number, case, path) for number, (case, path) in enumerate(judged)]
    asked, last = callers(drivers), 0
    for name, function, tree, names in functions():
        usual = function.__code__
        step = Driver.read if function.__module__ == tables.__name__ else Driver.derived
        mine = asked.get(usual, [])
        for what, code in mutants(tree, names):
            if (ident := f"{name} {what}") in done:
                continue
            function.__code__ = code
            # The case that saw the last one is asked first.
            order = sorted(mine, key=lambda one: one.number != last)
            seen = first_that_sees(order, step)
            function.__code__ = usual
            last = last if seen is None else seen
            yield ident, [] if seen is None else [seen]
