"""What a finding says to people, in one sentence or two, from its numbers."""

from collections.abc import Mapping
from typing import Any

from checkers import names


def text_of(name: str, row: Mapping[str, Any]) -> str:
    return f"{name} {row.get('partition')}"
