"""Small runs with a trace, as a correct cluster leaves them: scenarios played on the simulated cluster.

Rules kept here: every choice comes from the Random that is passed; each scenario is played once in a
process; a run has settled, and nothing in it is an error. Runs of one scenario differ in the nodes' names and
clocks: with a clock error every node's stamps are off by less than that.
"""

import copy
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from folders import RunFolder
from how_many import cases
from simulated_scenarios import ALL, plays

from floodmark.harness.spec import RULES

CONTROLLER = "controller"
CORRECT = [number for number, part in enumerate(ALL)
           if part.row.rules == RULES[-1] and not part.row.bugs]
# These lose records, as unclean elections and too many power cuts may.
ROUGH = [number for number in CORRECT if ALL[number].row.permitted]
# These lose nothing; the few have elections, truncations, changes of the ISR, restarts, and two partitions.
FEW = ("double-failover-reversed", "idle-leader", "credited-in-an-earlier-epoch", "isr-before-epoch-start",
       "isr-grows-behind-the-leader", "recovery-one-batch-short", "epochs-forgotten")
# Here one replica is away from the start, and says nothing.
SILENT = ("unclean-after-a-cut", "old-checkpoint", "unclean-by-hand")
HEALTHY = [number for number in CORRECT
           if ALL[number].scenario.spec.nodes == 3 and not ALL[number].row.permitted
           and ALL[number].scenario.name not in SILENT
           and (ALL[number].scenario.name in FEW or cases(1, few=0))]


def traced(random: Random, *, rough: bool = False, clock_error_ns: int = 0) -> RunFolder:
    """A settled run with its trace."""
    folder = copy.deepcopy(played(random.choice(ROUGH if rough else HEALTHY)))
    nodes = folder.run["nodes"]
    names = dict(zip(nodes, random.sample(nodes, len(nodes)), strict=True))
    folder = RunFolder(**{name: renamed(getattr(folder, name), names)
                          for name in ("run", "lines", "dumps", "rows", "trace")})
    folder.run["nodes"] = nodes
    folder.run["clock_error_ns"] = clock_error_ns
    skews = {node: random.randrange(clock_error_ns // 2 + 1) for node in (*nodes, CONTROLLER)}
    assert folder.trace is not None
    for line in folder.trace:
        line["time"] += skews[line["node"]]
    folder.trace.sort(key=lambda line: int(line["time"]))
    return folder


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The same with other names of nodes, wherever they are."""
    if isinstance(value, dict):
        return {names.get(key, key): renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [renamed(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


@cache
def played(number: int) -> RunFolder:
    with TemporaryDirectory() as parent:
        (one,) = plays([ALL[number]], Path(parent))
        assert one.why is None, one.why
        return RunFolder.read(one.folder)
