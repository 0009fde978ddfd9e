"""Reads tests/corpus: cases of the judge as text, each a run folder told in a few lines and its findings.

tests/corpus/README.md documents the language. `Told` makes the folder of a case; `said` writes a verdict as
cases do.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from folders import NODES, Line, Tale, crc_of
from traced_story import Story

from floodmark.harness.verdict import Verdict

CORPUS = Path(__file__).parents[1] / "corpus"
WORD = re.compile(r'(?:[^\s"]|"(?:\\.|[^"\\])*")+')
STATEMENT = re.compile(r'(?:[^;"]|;(?! )|"(?:\\.|[^"\\])*")+')
ITEM = re.compile(r"(?:(\d+):)?(-|-?\d+)(?:@(-?\d+))?(?:e(-?\d+))?(\{.*\})?$")
GROUPS = {name: names.split() for name, names in (
    line.split(": ") for line in (CORPUS / "groups.txt").read_text().splitlines())}

# The twin's log has one record at an offset, of a known epoch.
BEYOND_THE_TWIN = (
    "what is appended over a record without a truncation does not remove it",
    "the same of an epoch that nobody knows",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case: its file and name, its story, and what must be found."""

    file: str
    name: str
    story: tuple[str, ...]
    expected: tuple[str, ...]
    sentences: tuple[str, ...]  # what some reason, or some example as JSON, contains

    @property
    def tells_examples(self) -> bool:
        """Whether a sentence is about an example: its text begins with a capital, a key with its quote."""
        return any(sentence[0] == '"' or sentence[0].isupper() for sentence in self.sentences)

    @property
    def ident(self) -> str:
        return f"{self.file}: {self.name}"

    @property
    def for_the_twin(self) -> bool:
        """Whether the twin can judge it."""
        return "unknown: MADE, unfit" not in self.expected and self.name not in BEYOND_THE_TWIN

    def write(self, path: Path) -> Path:
        return Told(self.story).write(path)


def cases() -> list[Case]:
    return [case for file in sorted(CORPUS.glob("*.txt")) if file.name != "groups.txt"
            for case in cases_of(file)]


def cases_of(file: Path) -> Iterator[Case]:
    for part in f"\n{file.read_text()}".split("\n== ")[1:]:
        name, *lines = part.strip().splitlines()
        said = {mark: tuple(line[3:] for line in lines if line.startswith(mark)) for mark in ("=> ", "?> ")}
        story = tuple(line for line in lines if not line.startswith(("#", *said)))
        yield Case(file=file.stem, name=name, story=story, expected=tuple(sorted(said["=> "])),
                   sentences=said["?> "])


def value_of(word: str) -> Any:
    """JSON, or a word as it is."""
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        return word


def fields_of(words: Iterable[str]) -> tuple[list[str], Line]:
    """The bare words, and the others as fields: NAME=JSON."""
    bare, fields = [], {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"[\w.-]+", name):
            fields[name] = value_of(value)
        else:
            bare.append(word)
    return bare, fields


def item_of(word: str, f: str = "") -> Line:
    """PARTITION:VALUE@OFFSETeEPOCH{more} as an item of an op, or as an entry of a log."""
    found = ITEM.match(word)
    assert found, f"{word} is no [PARTITION:]VALUE[@OFFSET][eEPOCH]"
    partition, value, offset, epoch, more = found.groups()
    if f == "list_offsets":
        return {"partition": int(partition or 0), "offset": int(value), **json.loads(more or "{}")}
    item = {"partition": int(partition or 0), "offset": offset, "epoch": epoch}
    item = {key: int(number) for key, number in item.items() if number is not None}
    return {**item, "value": None if value == "-" else int(value), **json.loads(more or "{}")}


def invoked(f: str, fields: Line) -> Line:
    """The fields of the invocation of an op with these."""
    if "sends" in fields:
        return {"sends": [{key: item[key] for key in ("partition", "value") if key in item}
                          for item in fields["sends"]]}
    has_partitions = f in ("assign", "subscribe") and "partitions" in fields
    return {"partitions": fields["partitions"]} if has_partitions else {}


class Told(Tale):
    """The folder that a story tells."""

    def __init__(self, story: Sequence[str]) -> None:
        statements = [one.strip() for line in story for one in STATEMENT.findall(line)]
        partitions = [one for one in statements if one.startswith("partitions ")]
        super().__init__(partitions=int(partitions[0].split()[1]) if partitions else 1)
        self.story, self.final_time, self.edit = Story(), 0, self.in_time
        for statement in statements:
            verb, *words = WORD.findall(statement)
            if re.fullmatch(r"-?\d+", verb):
                self.op_line(int(verb), *words)
            else:
                getattr(self, f"tell_{verb}", self.tell_step)(verb, *words)
        if self.story.lines:
            self.trace = self.story.lines

    # -- the history

    def op_line(self, process: int, f: str, *words: str) -> None:
        """PROCESS [invoke|ok|fail|info] F [fail|info] ITEMS: both lines of an op, or the one named."""
        if f == "acked":
            bare, fields = fields_of(words)
            for word in bare:
                item = item_of(word)
                self.acked(item["value"], process=process, partition=item["partition"], **fields)
            return
        kind = f if f in ("invoke", "ok", "fail", "info") else ""
        if kind:
            f, *words = words
        outcome = "ok"
        if not kind and words[:1] in (("fail",), ("info",)):
            outcome, *words = words
        bare, more = fields_of(words)
        times = {key: more.pop(key) for key in ("index", "time") if key in more}
        fields = self.items_of(f, bare, kind) | more
        if not kind:
            self.line(process, "invoke", f, **invoked(f, fields))
        self.line(process, kind or outcome, f, **fields, **times)

    def items_of(self, f: str, words: Sequence[str], kind: str) -> Line:
        if f in ("assign", "subscribe"):
            return {"partitions": [int(word) for word in words]}
        if f == "list_offsets":
            return {"offsets": [item_of(word, f) for word in words]} if words else {}
        at = words.index("reads") if "reads" in words else len(words) if f != "poll" else -1
        sends, reads = ([item_of(word) for word in some] for some in (words[:max(at, 0)], words[at + 1:]))
        found = {"sends": sends} if sends else {}
        return found | ({"reads": reads} if reads or (f == "poll" and kind != "invoke") else {})

    def tell_fault(self, _: str, f: str, *words: str) -> None:
        nodes, fields = fields_of(words)
        times = {key: fields.pop(key) for key in ("index", "time") if key in fields}
        self.line(-1, "info", f, fault={"nodes": nodes, **fields}, **times)

    def tell_line(self, _: str, line: str) -> None:
        self.lines.append(json.loads(line))

    def tell_raw(self, _: str, text: str) -> None:
        """Text as it stands in the place of a line."""
        self.lines.append({"raw": json.loads(text)})

    def tell_no(self, *_: str) -> None:
        """no final reads"""
        self.final = False

    def tell_final(self, _: str, *words: str) -> None:
        """final time=N: when the final reads begin."""
        self.final_time = fields_of(words)[1]["time"]

    def in_time(self, lines: list[Line]) -> list[Any]:
        """Times do not fall but where the story says so; raw text in its place."""
        time, first = 0, len(self.lines)
        for at, line in enumerate(lines):
            if at >= first or "time" not in self.lines[at]:
                line["time"] = max(time, line["time"], self.final_time if at >= first else 0)
            time = line["time"] if isinstance(line["time"], int) else time
        return [line.get("raw", line) for line in lines]

    # -- the logs and the other files

    def tell_partitions(self, *_: str) -> None:
        """It was looked for before all others."""

    def tell_log(self, _: str, *words: str) -> None:
        """log [NODE] ENTRIES: appended to all logs, or all that is in this one of that partition."""
        nodes = [word for word in words[:1] if word in NODES] or NODES
        items = [item_of(word) for word in words if word not in NODES] if "none" not in words else []
        partition = items[0]["partition"] if items else int(words[2]) if words[2:] else 0
        if len(nodes) == 1:
            self.logs[nodes[0]] = [one for one in self.logs[nodes[0]] if one["partition"] != partition]
        for node in nodes:
            for item in items:
                log = [one for one in self.logs[node] if one["partition"] == item["partition"]]
                offset = log[-1]["offset"] + 1 if log else 0
                self.logs[node].append({"offset": offset, "epoch": 0, "crc": crc_of(item["value"]), **item})

    def tell_row(self, _: str, node: str, *words: str) -> None:
        bare, fields = fields_of(words)
        node, _, partition = node.partition("/")
        self.row(node, int(partition or 0)).update(fields | {
            word.removeprefix("-"): True if word == "absent" else "absent" for word in bare})

    def tell_run(self, _: str, *words: str) -> None:
        for word in words:
            name, equals, value = word.partition("=")
            *way, last = name.removeprefix("-").split("/")
            place = self.run
            for step in way:
                place = place.setdefault(step, {})
            if equals:
                place[last] = value_of(value)
            elif name == "-history_lines":
                place[last] = "absent"
            else:
                del place[last]

    def tell_file(self, _: str, name: str, *text: str) -> None:
        self.files[name] = None if text == ("absent",) else json.loads(text[0])

    # -- the trace

    def tell_trace(self, _: str, line: str) -> None:
        self.story.lines.append(json.loads(line))

    def tell_step(self, verb: str, *words: str) -> None:
        """A step of traced_story.py."""
        bare, fields = fields_of(words)
        lists = {key: value.split(",") for key, value in fields.items()
                 if key in LISTS and isinstance(value, str)}
        args = [word.split(",") if "," in word else value_of(word) for word in bare]
        if verb == "ruling" and not isinstance(args[1], list):
            args[1] = [args[1]]
        getattr(self.story, verb)(*args, **(fields | lists))


LISTS = ("isr", "by", "learners")


def sentences(verdict: Verdict) -> list[str]:
    """The reasons and the examples, as JSON, of this verdict."""
    reasons = [one.reason for one in (*verdict.unknown, *verdict.not_made)]
    return [*reasons, *(json.dumps(example) for one in verdict.findings for example in one.examples)]


def said(verdict: Verdict) -> tuple[str, ...]:
    """What a case must expect of this verdict."""
    unknown = {name for one in verdict.unknown for name in one.names}
    not_made = {name for one in verdict.not_made for name in one.names}
    lines = [finding_said(one) for one in verdict.findings]
    lines += [f"{what}: {grouped(names)}" for what, names in (("unknown", unknown), ("not made", not_made))
              if names]
    return tuple(sorted(lines))


def valid(case: Case) -> bool | str:
    """What the verdict says of the run as a whole, if this is found and unknown."""
    found = [line for line in case.expected if not line.startswith(("unknown: ", "not made: "))]
    if any("(" not in line for line in found):
        return False
    return "unknown" if any(line.startswith("unknown: ") for line in case.expected) else True


def finding_said(one: Any) -> str:
    """NAME [xCOUNT] [(CAUSE)] and how and where each example is."""
    where = ", ".join(filter(None, map(place_of, one.examples)))
    parts = (one.name, f"x{one.count}" if one.count != 1 else "",
             f"({one.permitted_by})" if one.permitted_by else "", where)
    return " ".join(filter(None, parts))


def place_of(example: Any) -> str:
    how = str(example.get("how") or "").replace(" ", "-")
    offset = "" if example.get("offset") is None else f"@{example['offset']}"
    partition = f"{example['partition']}:" if example.get("partition") else ""
    return f"{partition}{'' if how.startswith('[') else how}{offset}"


def grouped(names: set[str]) -> str:
    """These names, in as few words as the groups allow."""
    words = []
    while fitting := [group for group, some in GROUPS.items() if names >= {*some}]:
        best = max(fitting, key=lambda group: (len(GROUPS[group]), group))
        words.append(best.upper())
        names = names - {*GROUPS[best]}
    return ", ".join([*words, *sorted(names)])
