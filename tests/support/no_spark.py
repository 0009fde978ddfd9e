"""The part of a SparkContext that the judge uses, in this process: tasks run one after the other.

What Spark would send is pickled. For tests of what tasks do; tests/integration checks that Spark does the
same.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

Task = Callable[[], Iterator[Any]]


class NoSpark:
    """Has the methods of a SparkContext that passes.py calls."""

    def __init__(self, cores: int = 2) -> None:
        self.defaultParallelism = cores

    def parallelize(self, items: Sequence[Any], slices: int) -> "Rdd":
        ends = [len(items) * number // slices for number in range(slices + 1)]
        return Rdd([partial(iter, items[start:end]) for start, end in pairwise(ends)])

    def runJob(self, rdd: "Rdd", function: Callable[..., Any], partitions: Iterable[int]) -> list[Any]:
        return [shipped(one) for at in partitions for one in function(rdd.tasks[at]())]

    def broadcast(self, value: Any) -> SimpleNamespace:
        return SimpleNamespace(value=shipped(value))


class Rdd:
    """Tasks, each of which yields the items of a partition."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks

    def mapPartitions(self, function: Callable[..., Any]) -> "Rdd":
        return self.mapPartitionsWithIndex(lambda _, items: function(items))

    def mapPartitionsWithIndex(self, function: Callable[..., Any]) -> "Rdd":
        def items_of(at: int, task: Task) -> Iterator[Any]:
            return iter(function(at, task()))

        return Rdd([partial(items_of, at, task) for at, task in enumerate(self.tasks)])

    def partitionBy(self, count: int, key: Callable[[Any], int]) -> "Rdd":
        """Shuffles once, however often the result is read."""
        made: list[list[bytes]] = []

        def items_of(at: int) -> Iterator[Any]:
            if not made:
                made.extend([] for _ in range(count))
                for task in self.tasks:
                    for item in task():
                        made[key(item[0]) % count].append(pickle.dumps(item))
            return map(pickle.loads, made[at])

        return Rdd([partial(items_of, at) for at in range(count)])

    def collect(self) -> list[Any]:
        return [shipped(item) for task in self.tasks for item in task()]


def shipped(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))
