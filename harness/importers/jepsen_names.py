"""Numbers Jepsen's keys, values and processes, which may be of any type. The mapping is one to one.

Rules
1. A key that is an integer keeps its number; any other key gets the number that it spells, if it is free, or
   the first free one. In JSON a map's keys are strings: there "5" and 5 are the same key.
2. Jepsen's values are unique for a key, format 1 needs them unique in the run: a value v of partition p
   becomes p * 10^12 + v, so that partition 0 keeps its values and the others can be recognised. A value that
   is no number from 0 to 10^12 is numbered -1, -2, ... in order of appearance.
3. A process keeps its number. In a later life (after its position in the logs was given up), and in a life
   for a single poll, it has that number + 10^9, + 2 * 10^9, ...
"""

from collections.abc import Iterator

from floodmark.harness.importers.edn import text_of

SPAN = 10**12  # values of one partition
PARTITIONS = 9 * 10**6  # this many spans fit below 2^63
LIFE = 10**9


class Names:
    """The numbers of one import's keys, values and processes."""

    def __init__(self, *, json: bool) -> None:
        self.partitions: dict[int, str] = {}  # number -> the key as text
        self.odd: dict[tuple[int, str], int] = {}  # (partition, value as text) -> its number
        self._json = json
        self._numbers: dict[int | str, int] = {}  # key, or its text -> number
        self._free = 0
        self._lives: dict[int, int] = {}  # process -> its number of further lives
        self._now: dict[int, int] = {}  # process -> its present number, in a further life

    def partition(self, key: object) -> int:
        key_ = _as_number(key) if self._json and isinstance(key, str) else key
        name = key_ if type(key_) is int else text_of(key_)  # True is no 1
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._number_for(key_)
            self.partitions[number] = text_of(key_)
        return number

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
        """Yields each number of an odd value, and the value."""
        for (partition, text), number in self.odd.items():
            yield {"value": number, "partition": partition, "was": text}

    @property
    def lives(self) -> int:
        return sum(self._lives.values())

    def _number_for(self, key: object) -> int:
        wanted = _as_number(key) if isinstance(key, str) else key
        if type(wanted) is int and 0 <= wanted < 1 << 31 and wanted not in self.partitions:
            return wanted
        while self._free in self.partitions:
            self._free += 1
        return self._free


def _as_number(text: str) -> int | str:
    """The number that a string spells; else the string."""
    digits = text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if digits and (text[0] != "0" or text == "0") else text
