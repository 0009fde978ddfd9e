"""The quick reader of a Jepsen history's common lines gives the plain reader's result.

Folder for folder, byte for byte, and the same sentence if a file is refused.
"""

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from jepsen_damage import damaged, text_of
from jepsen_runs import history

from floodmark.harness.commands.import_jepsen import import_history
from floodmark.harness.errors import UsageError
from floodmark.harness.importers import jepsen_run
from floodmark.harness.importers.jepsen_common_lines import ORDER, CommonLines, pattern_of

HISTORIES = 240
FIELD = re.compile(r"[{ ]:(index|time|process|type|f|value) ")


class NoneOfThem(CommonLines):
    """No line is common: the reader of EDN gets all of the file."""

    def convert(self, line: re.Match[bytes]) -> bool:
        return False


class Counting(CommonLines):
    taken = 0

    def convert(self, line: re.Match[bytes]) -> bool:
        taken = super().convert(line)
        Counting.taken += taken
        return taken


def reordered(text: str, random: Random) -> str:
    """The same ops with their fields in another order, the same in nearly all lines."""
    order = random.sample(range(6), 6)

    def line_of(line: str) -> str:
        body = line[1:-1]
        places = [found.start() for found in FIELD.finditer(f" {body}")]
        parts = [body[one:other].strip(", ") for one, other in zip(places, [*places[1:], None], strict=True)]
        shuffled = random.sample(range(6), 6) if random.random() < 0.02 else order
        return f"{{{', '.join(parts[place] for place in shuffled)}}}"

    plain = [line for line in text.splitlines() if len(FIELD.findall(line)) == 6 and "#{" not in line]
    return "\n".join(line_of(line) if "seek" not in line and "rebalance" not in line else line
                     for line in plain) + "\n"


ODD = (  # what may be between lines, or in place of a part of one
    "; a comment\n", "#_{:index 5}\n", "#_", "\n\n", "-1", "007", "1e3", "1N", "[", "]", "{", "}", "nil",
    "{:process :nemesis, :type :info, :f :kill, :value nil}\n",
    '{:process 1, :type :info, :f :note, :value "\n', '"}\n',
    "1000000000000", "9223372036854775808", ", :error :timeout", ", :poll-ms 100", "[:poll {}]", "[:poll]",
    "[:send 0 5]", "[:send 0 [nil 5]]", "[:send 0 [1 [2 3]]]", "0 [], ", ":x", '"a"', " ", ",", "  ", "\r\n",
)  # fmt: skip


def spoil(text: str, random: Random) -> str:
    """Changes, removes or doubles a few bytes, mostly where a number or a micro-op begins."""
    for _ in range(random.choice((0, 0, 1, 1, 3))):
        places = [found.start() for found in re.finditer(r"\d+|\[:|\n|\{|\}", text)]
        at = random.choice(places) + random.choice((0, 0, 0, 1))
        text = text[:at] + random.choice((*ODD, text[at:at + 9])) + text[at + random.choice((0, 0, 1, 2)):]
    return text


def text_for(seed: int) -> str:
    random = Random(f"common {seed}")
    if seed % 3 == 0:
        text = text_of(damaged(seed, ops=25)[1]) + "\n"
    else:
        text = history(seed, txn=bool(seed % 2), subscribe=bool(seed // 2 % 2), ops=25) + "\n"
    if seed % 4 == 1:
        text = reordered(text, random)
    if seed % 5 == 2:  # big numbers, other partitions
        text = text.replace("[:send 1 ", "[:send 123456 ").replace(" 2 [[", " 999999 [[")
    if seed % 7 == 3:
        text = text.replace("{:index", "#jepsen.history.Op{:index")
    if seed % 11 == 4:
        text = f"[{text}]"
    return spoil(text, random)


def outcome(root: Path, text: str, name: str) -> list[bytes] | str:
    """The folder's files, or the sentence that refuses it."""
    place = root / name
    place.mkdir()
    (place / "history.edn").write_text(text, newline="")
    try:
        import_history(place / "history.edn", out=place / "run")
    except UsageError as error:
        return str(error).replace(str(place), "")
    return [file.read_bytes() for file in sorted((place / "run").iterdir())]


def test_what_is_quick_is_what_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text_for(seed) for seed in range(HISTORIES)]
    outcomes = {}
    for kind in (Counting, NoneOfThem):
        monkeypatch.setattr(jepsen_run, "CommonLines", kind)
        for seed, text in enumerate(texts):
            outcomes[kind, seed] = outcome(tmp_path, text, f"{kind.__name__}-{seed}")

    different = [f"{seed}: {texts[seed][:300]}" for seed in range(HISTORIES)
                 if outcomes[Counting, seed] != outcomes[NoneOfThem, seed]]
    assert different == []
    seen = Counter(type(one) for one in outcomes.values())
    assert seen[str] > 80, seen  # refused
    assert seen[list] > 160, seen
    assert Counting.taken > 20 * HISTORIES  # most lines are common


@pytest.mark.parametrize(("line", "common"), [
    ("[[:send 0 1]]", True), ("[[:send 0 [5 1]]]", True), ("[[:poll]]", True), ("[[:poll {}]]", True),
    ("[[:poll {0 [[5 1] [6 2]], 3 [[0 1]]}]]", True), ("[[:poll] [:send 3 4] [:poll {3 [[1 1]]}]]", True),
    ("[[:send 00 1]]", False), ("[[:send 0 -1]]", False), ("[[:send 0 1.0]]", False), ("[]", False),
    ("[[:send 0 [nil 1]]]", False), ("[[:poll {0 []}]]", False), ("[[:poll {0 [[5 1] nil]}]]", False),
    ("[[:poll {:a [[5 1]]}]]", False), ('[[:send "0" 1]]', False), ("[[:send 0 1000000000000]]", False),
    ("nil", False), ("[[:append 0 1]]", False),
])  # fmt: skip
def test_what_a_common_line_is(line: str, common: bool) -> None:
    text = f"{{:index 0, :time 1, :type :ok, :process 2, :f :txn, :value {line}}}\n".encode()
    assert bool(pattern_of(ORDER).fullmatch(text)) is common
    assert not pattern_of(ORDER).fullmatch(text[:-1] + b" \n")
    assert not pattern_of(ORDER).match(b" " + text)


def test_a_line_inside_a_string_is_no_line(tmp_path: Path) -> None:
    """Nor is one after a #_: only the reader of EDN knows what is open."""
    line = "{:index 1, :time 1, :type :invoke, :process 2, :f :poll, :value [[:poll]]}\n"
    text = f'{{:process :x, :type :info, :f :note, :value "\n{line}"}}\n#_\n{line}'
    outcome(tmp_path, text + line.replace(":index 1", ":index 0"), "run")
    assert len((tmp_path / "run/run/history.jsonl").read_bytes().splitlines()) == 1


def test_the_order_of_the_fields_is_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jepsen_run, "CommonLines", Counting)
    text = history(5, txn=True, subscribe=False, ops=40, blind=0.0) + "\n"
    counts = []
    for name, given in (("as-jepsen", text), ("otherwise", reordered(text, Random(1)))):
        before = Counting.taken
        outcome(tmp_path, given, name)
        counts.append(Counting.taken - before)
    assert min(counts) > 40, counts
