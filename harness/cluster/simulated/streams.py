"""Random numbers by purpose: what one link or node draws changes nothing that another one draws."""

from random import Random


class Streams:
    """The streams of one seed. The n-th draw of a stream depends on the seed, its name and n."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[tuple[str, ...], Random] = {}

    def of(self, *name: str) -> Random:
        """The stream of this name: a purpose, then the link or node."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = Random("/".join((str(self._seed), *name)))
        return stream
