"""Which seqs the lines of each node of a trace have: every seq once, or with a gap.

    counts, seqs = seqs_of(run, node, seq)   of a range: the lines of each node, and the table SEQS
    facts = seq_facts(seqs)                  of such tables: a bag of blocks of seqs, joined

A trace in the order of its seqs, with any number of nodes, has one interval for each node and range. One that
was sorted otherwise has seqs from everywhere in every range. So intervals are distributed by blocks, whatever
range they come from: there a block without a missing seq is one interval again, and the driver gets few. It
joins them to exactly the seqs of all lines, however the file was cut; a seq that comes twice shows in the
count of lines (preconditions.NodeSeqs.complete).

If a bag of blocks has more than SEQ_INTERVALS intervals the highest are left out. Such a trace has gaps, and
is never taken for complete: if no other line has a seq that was left out, there are more lines than seqs; if
one has, it comes twice.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodmark.checkers.read.arrays import codes_of, numbers_of
from floodmark.checkers.read.facts import Intervals

Ints = npt.NDArray[np.int64]

SEQS = "seqs"  # a table that is distributed by its `block`
SEQ_INTERVALS = 1000  # of a node, in a bag of blocks, sent to the driver
BLOCK_BITS = 20  # a trace of 100,000,000 lines has some hundred blocks
# An interval of one node's seqs in some range. `block`: that of its first seq.
SCHEMA = pa.schema([
    ("run", pa.int32()), ("node", pa.dictionary(pa.int32(), pa.string())), ("first", pa.int64()),
    ("last", pa.int64()), ("block", pa.int64()),
])  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SeqFacts:
    """What the driver learns about one run's seqs in a bag of blocks."""

    run: int
    nodes: Mapping[str, Intervals]


def bounds_of(numbers: Ints) -> tuple[Ints, Ints]:
    """The first and the last number of each interval of the distinct ones."""
    if not len(numbers):
        return numbers, numbers
    rising = bool((numbers[1:] > numbers[:-1]).all())
    unique = numbers if rising else np.unique(numbers)
    # Compared, not subtracted: the difference of two 64-bit numbers may overflow.
    gaps = np.flatnonzero(unique[:-1] < unique[1:] - 1)
    return unique[np.concatenate(([0], gaps + 1))], unique[np.concatenate((gaps, [len(unique) - 1]))]


def pairs(firsts: Ints, lasts: Ints) -> Intervals:
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def seqs_of(run: int, node: pa.DictionaryArray, seq: Ints) -> tuple[dict[str, int], pa.Table]:
    """Those of the good lines of a range."""
    codes, names = node.indices.to_numpy(), node.dictionary
    seq = seq[np.argsort(codes, kind="stable")]
    counts = np.bincount(codes, minlength=len(names))
    ends = np.cumsum(counts)
    bounds = [bounds_of(seq[end - count : end]) for count, end in zip(counts, ends, strict=True)]
    whose = np.repeat(np.arange(len(names), dtype=np.int32), [len(firsts) for firsts, _ in bounds])
    first = np.concatenate([seq[:0], *(firsts for firsts, _ in bounds)])
    last = np.concatenate([seq[:0], *(lasts for _, lasts in bounds)])
    columns = {
        "run": np.full(len(whose), run, dtype=np.int32), "first": first, "last": last,
        "block": first >> BLOCK_BITS, "node": pa.DictionaryArray.from_arrays(pa.array(whose), names),
    }  # fmt: skip
    counted = {name: count for name, count in zip(names.to_pylist(), counts.tolist(), strict=True) if count}
    return counted, pa.Table.from_arrays([pa.array(columns[name]) for name in SCHEMA.names], schema=SCHEMA)


def seq_facts(table: pa.Table) -> list[SeqFacts]:
    """From all distributed seqs of some blocks, of one run or of several: one for each run."""
    run, (code, words) = numbers_of(table["run"]), codes_of(table["node"])
    order = np.lexsort((code, run))
    run, code = run[order], code[order]
    first, last = (table[name].to_numpy()[order] for name in ("first", "last"))
    starts = np.flatnonzero((np.diff(run, prepend=-1) != 0) | (np.diff(code, prepend=-1) != 0)).tolist()
    names, by_run = list(words), defaultdict[int, dict[str, Intervals]](dict)
    for begin, end in pairwise([*starts, len(run)]):
        intervals = united(first[begin:end], last[begin:end])
        by_run[int(run[begin])][names[code[begin]]] = intervals[:SEQ_INTERVALS]
    return [SeqFacts(run=one, nodes=nodes) for one, nodes in by_run.items()]


def united(firsts: Ints, lasts: Ints) -> Intervals:
    """The union of these intervals."""
    order = np.argsort(firsts, kind="stable")
    firsts, reached = firsts[order], np.maximum.accumulate(lasts[order])
    gaps = np.flatnonzero(firsts[1:] - 1 > reached[:-1])  # a seq is never below 0
    begins, ends = np.concatenate(([0], gaps + 1)), np.concatenate((gaps, [len(firsts) - 1]))
    return pairs(firsts[begins], reached[ends])
