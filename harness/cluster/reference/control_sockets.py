"""Sends requests to the control sockets of a cluster's processes, except to those that cannot answer now."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.cluster import control_client
from floodmark.harness.cluster.place import Place

State = Mapping[str, Any]  # the `ok` of an answer (docker/README.md)


class ControlSockets:
    """The control sockets of all processes. A process that does not run, or is paused, is not asked."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._controls = {
            name: control_client.Control(name, *one.asked) for name, one in place.layout.places.items()
        }

    def answers(self, name: str) -> bool:
        return self._place.lives(name) and not self._place.paused(name)

    async def ask(self, name: str, do: str, *, timeout_s: float, **besides: Any) -> State:
        """One process's answer. ControlError if it does not answer, Refused if it answers with an error."""
        return await self._controls[name].ask(do, timeout_s=timeout_s, **besides)

    async def ask_or_none(self, name: str, do: str, timeout_s: float) -> State | None:
        try:
            return await self.ask(name, do, timeout_s=timeout_s)
        except control_client.ControlError:
            return None

    async def ask_all(self, do: str, names: Sequence[str], timeout_s: float) -> dict[str, State]:
        """The answers by name, without processes that did not answer."""
        asked = [name for name in names if self.answers(name)]
        answers = await asyncio.gather(*(self.ask_or_none(name, do, timeout_s) for name in asked))
        return {name: answer for name, answer in zip(asked, answers, strict=True) if answer is not None}

    async def hang_up(self, name: str) -> None:
        await self._controls[name].hang_up()

    async def close(self) -> None:
        for one in self._controls.values():
            await one.hang_up()
