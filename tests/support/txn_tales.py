"""Steps of tales with transactions: two partitions, four places, and the transactions that read and write
them.

A tale is written line by line: `began` and `ended` are the lines of one transaction, `txn` both.
"""

from collections.abc import Sequence
from random import Random

from folders import Tale

Place = tuple[int, int, int]  # partition, offset, value


def began(tale: Tale, process: int, *sends: Place, f: str = "txn") -> None:
    tale.line(process, "invoke", f, **carried("sends", sends, has_offset=False))


def ended(
    tale: Tale, process: int, *sends: Place, reads: Sequence[Place] = (), kind: str = "ok", f: str = "txn"
) -> None:
    tale.line(process, kind, f, **carried("sends", sends, has_offset=kind == "ok"), **carried("reads", reads))


def txn(
    tale: Tale, process: int, *sends: Place, reads: Sequence[Place] = (), kind: str = "ok", f: str = "txn"
) -> None:
    began(tale, process, *sends, f=f)
    ended(tale, process, *sends, reads=reads, kind=kind, f=f)


def carried(name: str, places: Sequence[Place], *, has_offset: bool = True) -> dict[str, object]:
    shown = ("partition", "offset", "value") if has_offset else ("partition", "value")
    items = [dict(zip(("partition", "offset", "value"), place, strict=True)) for place in places]
    return {name: [{key: item[key] for key in shown} for item in items]} if places else {}


def two() -> Tale:
    """Two partitions, with the values 10, 11, ... in one and 20, 21, ... in the other."""
    return Tale(partitions=2)


A, B, C, D = (0, 0, 10), (0, 1, 11), (1, 0, 20), (1, 1, 21)


def logged(tale: Tale, *places: Place) -> Tale:
    for partition, _, value in sorted(places):
        tale.logged(value, partition=partition)
    return tale


def mutual() -> Tale:
    """Two transactions, open at the same time, that read each other's values."""
    tale = logged(two(), A, C)
    began(tale, 1, A)
    began(tale, 2, C)
    ended(tale, 1, A, reads=[C])
    ended(tale, 2, C, reads=[A])
    return tale


def busy(seed: int, ops: int, processes: int = 10, keys: int = 3) -> Tale:
    """Transactions of a correct cluster: each takes effect at one moment while it is open; it reads the
    records there at that moment from its process's position on, and appends."""
    random, tale = Random(seed), Tale(partitions=keys)
    logs: list[list[int]] = [[] for _ in range(keys)]
    opened: dict[int, tuple[list[int], list[Place] | None, list[Place]]] = {}
    at: dict[tuple[int, int], int] = {}
    value, waiting = 0, list(range(processes))
    while ops or opened:
        process = random.choice(waiting)
        if process not in opened:
            if not ops:
                waiting.remove(process)
                continue
            ops -= 1
            asked = random.sample(range(keys), random.choice((0, 1, 2)))
            value += 10
            opened[process] = ([value + key for key in asked], None, [])
            sends = [{"partition": one % 10, "value": one} for one in opened[process][0]]
            tale.line(process, "invoke", "txn", **({"sends": sends} if sends else {}))
        elif opened[process][1] is None:
            reads = []
            for key in random.sample(range(keys), random.choice((1, 2, 3))):
                start = at.get((process, key), 0)
                reads += [(key, offset, logs[key][offset]) for offset in range(start, len(logs[key]))][:4]
                at[process, key] = max([start, *(offset + 1 for place, offset, _ in reads if place == key)])
            sent = []
            for one in opened[process][0]:
                logs[one % 10].append(one)
                sent.append((one % 10, len(logs[one % 10]) - 1, one))
            opened[process] = (opened[process][0], sent, reads)
        else:
            _, done, shown = opened.pop(process)
            ended(tale, process, *(done or ()), reads=shown)
    for key, log in enumerate(logs):
        tale.logged(*log, partition=key)
    return tale
