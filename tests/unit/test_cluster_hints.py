"""What `cluster up` prints for people: what this system, in this place, can do, and nothing else."""

from typing import Any

import pytest

from floodmark.harness.commands.cluster import hints
from floodmark.harness.protocols import Expires


class KillsOnly:
    """A cluster as far as hints look at it: nodes can be killed, and their sessions ended."""

    def __init__(self, lacks: dict[type, str], **system: str) -> None:
        self.lacks, self.system, self.abilities = lacks, system, ()

    async def kill(self, node: str) -> None: ...
    async def start_node(self, node: str) -> None: ...
    async def stop_node(self, node: str) -> None: ...
    async def expire(self, node: str) -> None: ...


class PausesAndCutsToo(KillsOnly):
    async def pause(self, node: str) -> None: ...
    async def resume(self, node: str) -> None: ...
    async def cut(self, grudge: Any, *, reset: bool = False) -> None: ...
    async def heal(self) -> None: ...


REFERENCE = {"name": "reference", "rules": "kip-320"}
KAFKA = {"name": "kafka", "version": "4.3.1", "form": "kraft"}


@pytest.mark.parametrize(("cluster", "commands", "says"), [
    (KillsOnly({}, **REFERENCE), ["state", "kill|start|stop|expire NODE..."], "There are no consumer groups"),
    (KillsOnly({Expires: "no sessions"}, **KAFKA), ["state", "kill|start|stop NODE..."],
     "This is Apache Kafka 4.3.1"),
    (PausesAndCutsToo({Expires: "no sessions"}, **KAFKA),
     ["state", "kill|start|stop|pause|resume NODE...", "cut NODE... | heal"], "This is Apache Kafka 4.3.1"),
    (KillsOnly({}, name="somebody's"), ["state", "kill|start|stop|expire NODE..."], ""),
])
def test_only_possible_faults_are_offered(cluster: Any, commands: list[str], says: str) -> None:
    """And what its clients can do."""
    lines = hints(cluster).splitlines()
    offered = [line.partition("floodmark cluster ")[2] for line in lines]
    assert [words for words in offered if words] == commands
    assert lines[0].startswith("From another terminal: floodmark cluster state")
    assert lines[-1] == "Ctrl-C ends it."
    assert says in hints(cluster)
    assert ("consumer groups" in hints(cluster)) == (cluster.system["name"] == "reference")
