"""What was imported of another tool's history, what was not, what was changed and what was assumed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from floodmark.harness.importers.jepsen_ops import Converter
from floodmark.harness.importers.jepsen_run import ASSUMED, WORKLOAD
from floodmark.harness.report.phrases import many

SHOWN = 8  # partitions named in one line


def summary(converter: Converter, about: Mapping[str, Any]) -> Iterator[str]:
    """Yields the summary: what was imported and what was not."""
    imported = about["imported"]
    yield (f"imported {many(converter.lines.count, 'line')}: {converter.records} sends, polls and txns of "
           f"{many(len(converter.processes), 'client')}, {many(len(about['partitions']), 'partition')}, "
           f"{many(len(about['nodes']), 'node')} that the nemesis met")
    yield from listed("not carried", imported["left_out"].items())
    yield from listed("changed", imported["changed"].items())
    if converter.missing:
        yield (f"{many(converter.missing, 'op')} may have sent or read and cannot be judged: "
               "the history counts as incomplete")
    values = ", ".join(f"{key}={value}" for key, value in ASSUMED.items() if key in imported["assumed"])
    yield f"assumed: {values} (change them with -c KEY=VALUE)"
    yield from read_extent(converter, imported)


def read_extent(converter: Converter, imported: Mapping[str, Any]) -> Iterator[str]:
    """Yields sentences on which partitions' losses can be judged."""
    if not converter.records:
        yield f"it has no send, poll or txn: is it a history of {WORKLOAD}? Nothing can be judged"
        return
    final = converter.reach.final_reads()[1]
    partitions = many(len(converter.names.partitions), "partition")
    yield (f"final polls read {len(final)} of {partitions} to the end; "
           "lost writes are inferred from reads and missing reads, as Jepsen does, and checks of "
                  "logs and replicas are not made")
    for name, why in (("unread", "acked records are above all reads"),
                      ("blind", "records were read without offsets")):
        if imported[name]:
            more = ", ..." if len(imported[name]) > SHOWN else ""
            some = ", ".join(map(str, imported[name][:SHOWN]))
            yield f"lost writes of partition {some}{more} cannot be judged: {why}"


def listed(head: str, counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    for label, number in counts:
        yield f"{head}: {number} x {label}"
