"""The layout of a cluster as text: what its processes are told, and where they are found."""

import itertools
from collections.abc import Collection, Iterator

from floodmark.harness.cluster.layout import Layout
from floodmark.harness.schedule.views import CONTROLLER


class Counting:
    """Ports in the order in which they are asked for."""

    def __init__(self) -> None:
        self._left = itertools.count(9001)

    def choose(self) -> int:
        return next(self._left)

    def take(self, port: int) -> int:
        return port


def told(title: str, layout: Layout, without: Collection[str]) -> Iterator[str]:
    """The properties of two brokers and the controller, without these lines; addresses, paths, links."""
    for name in ("n1", "n2", CONTROLLER):
        yield f"== {title}: {name}"
        lines = layout.properties_of(name).read_text().splitlines()
        yield from (line for line in lines if line not in without)
        place = layout.places[name]
        yield f"reached at {place.reached}, advertised at {place.advertised}, asked at {place.asked}"
        yield f"here {place.log_dir}, {place.durable}, {place.trace}"
        if (hosts := layout.work(f"{name}.hosts")).exists():
            yield f"hosts {', '.join(hosts.read_text().splitlines())}"
    yield from (f"link {' '.join(map(str, link.values()))}" for link in layout.links_config())
