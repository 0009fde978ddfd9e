"""Cuts and heals links by requests to the links process, and remembers which are cut.
Rule: cuts add up until the heal: a new cut does not end an earlier one.
"""

from collections.abc import Mapping, Sequence

from floodmark.harness.cluster import control_client

ASK_S = 60.0


class LinkCuts:
    """Controls the links process over its connection."""

    def __init__(self, lines: control_client.Lines) -> None:
        self._lines = lines
        self._cuts: dict[tuple[str, str], bool] = {}  # (sender, receiver) -> whether by reset

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool) -> None:
        """Cuts links. grudge: node -> the nodes it receives nothing from."""
        self._cuts |= {(sender, receiver): reset
                       for receiver, senders in grudge.items() for sender in senders}
        await self._set()

    async def heal(self) -> None:
        self._cuts.clear()
        await self._set()

    async def mend(self) -> list[str]:
        """Heals all links; returns a sentence for each that the links process still has cut."""
        try:
            await self.heal()
            state = await self._lines.ask("state", timeout_s=ASK_S)
            return [f"{sender} to {receiver} is still cut"
                    for sender, receiver in state["silent"] + state["reset"]]
        except control_client.ControlError as error:
            return [f"the links cannot be healed: {error}"]

    async def close(self) -> None:
        await self._lines.close()

    async def _set(self) -> None:
        await self._lines.ask(
            "set",
            timeout_s=ASK_S,
            silent=[pair for pair, reset in self._cuts.items() if not reset],
            reset=[pair for pair, reset in self._cuts.items() if reset],
        )
