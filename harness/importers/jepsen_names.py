"""Numbers Jepsen's keys, values and processes, which may be of any type. The mapping is one to one.

Rules
1. A key that is an integer keeps its number; any other key gets the number that it spells, if it is free, or
   the first free one. In JSON a map's keys are strings: there "5" and 5 are the same key. Anywhere, a key
   that is only ever assigned is the used one with the same text, if there is just one (Maelstrom's clients
   use "5", and assign 5 in the end). Only the end of a history shows that: it is then read again.
2. Jepsen's values are unique for a key, format 1 needs them unique in the run: a value v of partition p
   becomes p * 10^12 + v, so that partition 0 keeps its values and the others can be recognised. A value that
   is no number from 0 to 10^12 is numbered -1, -2, ... in order of appearance.
3. A process keeps its number. In a later life (after its position in the logs was given up), and in a life
   for a single poll, it has that number + 10^9, + 2 * 10^9, ...
"""

from collections.abc import Iterator, Mapping

from floodmark.harness.importers.edn import Keyword, text_of

SPAN = 10**12  # values of one partition
PARTITIONS = 9 * 10**6  # this many spans fit below 2^63
LIFE = 10**9


class Names:
    """The numbers of one import's keys, values and processes."""

    def __init__(self, *, json: bool, same: Mapping[int | str, object]) -> None:
        """same: key, or its text -> the key that it is (only_assigned)."""
        self.same = same
        self.partitions: dict[int, str] = {}  # number -> the key as text
        self.odd: dict[tuple[int, str], int] = {}  # (partition, value as text) -> its number
        self._json = json
        self._numbers: dict[int | str, int] = {}  # key, or its text -> number
        self._keys: dict[int | str, object] = {}
        self._used: set[int | str] = set()  # those of sends and reads
        self._free = 0
        self._lives: dict[int, int] = {}  # process -> its number of further lives
        self._now: dict[int, int] = {}  # process -> its present number, in a further life

    def partition(self, key: object, *, used: bool = True) -> int:
        """The number of a key. used: by a send or read."""
        key_ = _as_number(key) if self._json and isinstance(key, str) else key
        name = _name_of(key_)
        if name in self.same:
            key_ = self.same[name]
            name = _name_of(key_)
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._number_for(key_)
            self.partitions[number] = text_of(key_)
            self._keys[name] = key_
        if used:
            self._used.add(name)
        return number

    def only_assigned(self) -> dict[int | str, object]:
        """Each key, or its text, that is not used, and the only used one with the same text."""
        used: dict[str, list[object]] = {}
        for name in self._used:
            used.setdefault(_plain(self._keys[name]), []).append(self._keys[name])
        unused = {name: used.get(_plain(key), []) for name, key in self._keys.items()
                  if name not in self._used}
        return {name: alike[0] for name, alike in unused.items() if len(alike) == 1}

    def value(self, partition: int, value: object, *, new: bool = True) -> int | None:
        """The number of the value; None if it is an odd value without a number and `new` is false."""
        if type(value) is int and 0 <= value < SPAN and partition < PARTITIONS:
            return partition * SPAN + value
        key_ = partition, text_of(value)
        if key_ not in self.odd and new:
            self.odd[key_] = -1 - len(self.odd)
        return self.odd.get(key_)

    def process(self, process: int) -> int:
        return self._now.get(process, process)

    def new_life(self, process: int) -> None:
        """Begins a new life of the process: its earlier reads do not restrict its next ones."""
        self._now[process] = self.another(process)

    def another(self, process: int) -> int:
        """A new process number, for a life without earlier reads."""
        self._lives[process] = self._lives.get(process, 0) + 1
        return process + LIFE * self._lives[process]

    def odd_values(self) -> Iterator[dict[str, object]]:
        for (partition, text), number in self.odd.items():
            yield {"value": number, "partition": partition, "was": text}

    def _number_for(self, key: object) -> int:
        wanted = _as_number(key) if isinstance(key, str) else key
        if type(wanted) is int and 0 <= wanted < 1 << 31 and wanted not in self.partitions:
            return wanted
        while self._free in self.partitions:
            self._free += 1
        return self._free


def _name_of(key: object) -> int | str:
    return key if type(key) is int else text_of(key)  # True is no 1


def _plain(key: object) -> str:
    """The key's text without quotes and colon."""
    return key.name if isinstance(key, Keyword) else key if isinstance(key, str) else text_of(key)


def _as_number(text: str) -> int | str:
    """The number that a string spells; else the string."""
    digits = text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if digits and (text[0] != "0" or text == "0") else text
