"""Cuts and heals links by orders to the links process, and remembers which are cut.

Rule: cuts add up until the heal; a fault in force does not vanish because another strikes.
"""

from collections.abc import Mapping, Sequence

from floodmark.harness.cluster import control_client

ASK_S = 10.0


class LinkCuts:
    """Over the lines to the links process."""

    def __init__(self, lines: control_client.Lines) -> None:
        self._lines = lines
        self._cuts: dict[tuple[str, str], bool] = {}  # (says, hears) -> by reset

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool) -> None:
        """grudge: who hears -> whom it does not hear."""
        self._cuts |= {(says, hears): reset for hears, unheard in grudge.items() for says in unheard}
        await self._set()

    async def heal(self) -> None:
        self._cuts.clear()
        await self._set()

    async def mend(self) -> list[str]:
        """Heals, and says what is left, in the links' own words."""
        try:
            await self.heal()
            state = await self._lines.ask("state", timeout_s=ASK_S)
            return [f"{says} to {hears} is still cut" for says, hears in state["silent"] + state["reset"]]
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
