"""Writes the text of a finding from its numbers: what happened, when, and which nodes have what now. The
sentences are in words.ini.

A cycle is JSON, a list of steps in their order: `edge` (its kind), `ops` (from which to which: process, f and
lines of each), and the record that it is about. Each sentence says why the second op comes after the first.
"""

import re
from collections.abc import Mapping
from configparser import ConfigParser, ExtendedInterpolation
from importlib.resources import files
from typing import Any

import orjson

from floodmark.checkers.laws import finding_names as names

Row = Mapping[str, Any]  # of checkers.laws.tables.FINDINGS, or what the driver knows of its own findings
# Of a broker's last words: the lines; characters of the first, which may have its last errors, and of others.
LAST_LINES, FIRST_CHARS, LAST_CHARS = 3, 600, 200
_OF_HISTORY, _OF_TRACE = re.compile(r" \(index [\d, ]+\)"), re.compile(r" \([^()]+, seq \d+ of its trace\)")


def _read_words() -> dict[str, dict[str, str]]:
    """The sections of words.ini, each text on one line."""
    parser = ConfigParser(interpolation=ExtendedInterpolation(), delimiters=(":",))
    parser.read_string(files(__package__).joinpath("words.ini").read_text(encoding="utf-8"))
    return {name: {key: " ".join(words.split()) for key, words in parser.items(name)}
            for name in parser.sections()}


WORDS = _read_words()


def sentence_in(name: str, kind: str, how: object) -> str | None:
    """The template of a kind (`says`, `blame`, `undecided`) for a finding and its `how`."""
    words = WORDS.get(name, {})
    return words.get(f"{kind} {how}".lower()) or words.get(kind)


def text_of(name: str, row: Row) -> str:
    """One paragraph about one finding."""
    if name in names.CYCLES:
        return cycle(row)
    sentence = sentence_in(name, "says", row.get("how"))
    return of_registered(name, row) if sentence is None else sentence.format_map({**row, **phrases(row)})


def doubt_of(name: str, row: Row) -> str:
    """Why nobody can tell whether rows of this name are findings."""
    sentence = WORDS[name].get("doubt") or WORDS["shared"]["below-log-start"]
    return sentence.format_map(row)


def of_registered(name: str, row: Row) -> str:
    """The text of another distribution's finding, from the columns that it has."""
    known = ("partition", "offset", "value", "process")
    where = " ".join(f"{key} {row[key]}" for key in known if row.get(key) is not None)
    nodes = f" on {', '.join(row['nodes'])}" if row.get("nodes") else ""
    how = f": {row['how']}" if row.get("how") else ""
    return f"{name}: {where or 'the run'}{nodes}{how}{lines_of(row)}."


def cycle(row: Row) -> str:
    """The paragraph about one cycle; of a run without transactions, that a value was read before its send."""
    how = row.get("how")
    if how and how.startswith("["):
        steps = orjson.loads(how)
        sentences = " ".join(map(sentence_of, steps))
        return f"A cycle of {len(steps)} ops, each before the next one. {sentences}"
    if row.get("value") is None or row.get("process") is None:
        return f"A cycle of ops, by way of partition {row.get('partition')}."
    return (f"Process {row['process']} read {row['value']} at partition {row['partition']} offset "
            f"{row['offset']} before its send began{lines_of(row)}.")


def sentence_of(step: Row) -> str:
    first, second = (f"process {op['process']}'s {op['f']} (index {', '.join(map(str, op['lines']))})"
                     for op in step["ops"])
    return WORDS["edges of a cycle"][step["edge"]].format_map({**step, "first": first, "second": second})


def lines_of(row: Row) -> str:
    """The indexes of the lines concerned, in brackets; empty if there are none."""
    ops = row.get("ops") or []
    return f" (index {', '.join(map(str, ops))})" if ops else ""


def phrases(row: Row) -> dict[str, str]:
    """Parts of sentences that several findings use, or that depend on which columns are known."""
    nodes, ops, seen = row.get("nodes") or [], row.get("ops") or [], row.get("seen")
    place = f"partition {row.get('partition')} offset {row.get('offset')}"
    of_epoch = "" if row.get("epoch") is None else f" of epoch {row['epoch']}"
    holders = f"held now by {', '.join(nodes)}" if nodes else "held by no replica"
    at_offset = "" if row.get("offset") is None else f" at offset {row['offset']}"
    return {
        "place": place,
        "record": f"the committed record{of_epoch} at {place}",
        "who": ", ".join(nodes),
        "elected": ", ".join(nodes) or "Nobody",
        "lack": "lacks" if len(nodes) == 1 else "lack",
        "holders": holders,
        "if_held": f"; it is {holders}" if nodes else "",
        "went_on": "were told that the log goes on above it" if seen is None else f"went on to offset {seen}",
        "above_hw": f"when the highest HW was {seen}",
        "lines": lines_of(row),
        "where_seen": f"was read{lines_of(row)}" if ops else f"is {holders}",
        "acked": f"{at_offset} (index {ops[-1]})" if ops else at_offset,
        "in_its_place": "a record that is not ours" if seen is None else f"{seen}",
        "gone": "no replica holds it" if seen is None else f"none of {seen} nodes knows its topic any more",
        "log_end": "before it begins" if seen is None else f"at {seen}",
        "trace_line": f" ({row.get('node')}, seq {row.get('seq')} of its trace)",
        "last_words": last_words(row.get("last_words")),
    }


def without_lines(sentence: str, *, of_history: bool = True, of_trace: bool = True) -> str:
    """The sentence without the lines that it names in brackets."""
    sentence = _OF_HISTORY.sub("", sentence) if of_history else sentence
    return _OF_TRACE.sub("", sentence) if of_trace else sentence


def last_words(output: object) -> str:
    """How a broker ended (the first line) and the end of its output, if run.json has it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] if isinstance(output, str) else []
    if len(lines) > LAST_LINES:
        lines = [lines[0], "...", *lines[1 - LAST_LINES :]]
    shown = [*(line[:FIRST_CHARS] for line in lines[:1]), *(line[-LAST_CHARS:] for line in lines[1:])]
    return f"; its last words: {' | '.join(shown)}" if lines else "."
