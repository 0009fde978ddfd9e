"""Numbers what Jepsen calls by any name: partitions, values, processes. One to one, so that nothing is made
equal that was not.

Rules
1. A key that is a whole number keeps it; any other gets the number it spells, if that is free, or the first
   that is. JSON spells keys of a map as strings: there "5" and 5 are one key.
2. Jepsen's values are unique within a key, format 1 wants them unique in the run: a value v of partition p
   becomes p * 10^12 + v, so that partition 0 keeps its values and the others can be read off. What is no
   number from 0 to 10^12 is numbered -1, -2, ... in order of appearance.
3. A process keeps its number. In a later life (its position in the logs was given up), and in one that is
   only for a poll of its own, it is that number + 10^9, + 2 * 10^9, ...
"""

from collections.abc import Iterator

from floodmark.harness.importers.edn import text_of

SPAN = 10**12  # values of one partition
PARTITIONS = 9 * 10**6  # so many spans are below 2^63
LIFE = 10**9


class Names:
    def __init__(self, *, json: bool) -> None:
        self.partitions: dict[int, str] = {}  # number -> the key as text
        self.odd: dict[tuple[int, str], int] = {}  # partition and value as text -> its number
        self._json = json
        self._numbers: dict[int | str, int] = {}  # key, or its text -> number
        self._free = 0
        self._lives: dict[int, int] = {}  # how many were given out
        self._now: dict[int, int] = {}  # process -> its number, where that is another

    def partition(self, key: object) -> int:
        told = _spelt(key) if self._json and isinstance(key, str) else key
        name = told if type(told) is int else text_of(told)  # True is no 1
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._number_for(told)
            self.partitions[number] = text_of(told)
        return number

    def value(self, partition: int, value: object, *, new: bool = True) -> int | None:
        """The number of the value; None where it is an odd one not met before and none is to be made."""
        if type(value) is int and 0 <= value < SPAN and partition < PARTITIONS:
            return partition * SPAN + value
        told = partition, text_of(value)
        if told not in self.odd and new:
            self.odd[told] = -1 - len(self.odd)
        return self.odd.get(told)

    def process(self, process: int) -> int:
        return self._now.get(process, process)

    def new_life(self, process: int) -> None:
        """What the process was shown so far says nothing of what it is to be shown next."""
        self._now[process] = self.another(process)

    def another(self, process: int) -> int:
        """A number for an op of its own, of somebody who was shown nothing before."""
        self._lives[process] = self._lives.get(process, 0) + 1
        return process + LIFE * self._lives[process]

    def odd_values(self) -> Iterator[dict[str, object]]:
        """Each number that was given out, and what it stands for."""
        for (partition, text), number in self.odd.items():
            yield {"value": number, "partition": partition, "was": text}

    @property
    def lives(self) -> int:
        return sum(self._lives.values())

    def _number_for(self, key: object) -> int:
        wanted = _spelt(key) if isinstance(key, str) else key
        if type(wanted) is int and 0 <= wanted < 1 << 31 and wanted not in self.partitions:
            return wanted
        while self._free in self.partitions:
            self._free += 1
        return self._free


def _spelt(text: str) -> int | str:
    """The number that a string spells, else the string."""
    digits = text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if digits and (text[0] != "0" or text == "0") else text
