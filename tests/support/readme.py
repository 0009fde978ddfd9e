"""Finds fenced blocks of the project's pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
CAMPAIGNS = ROOT / "harness" / "campaign" / "README.md"


def block(first_line: str, page: Path = CAMPAIGNS) -> str:
    """The fenced block of that page that begins with this line."""
    (one,) = [text for text in blocks(r"\w+", page) if text.partition("\n")[0] == first_line]
    return one


def blocks(language: str, page: Path) -> list[str]:
    """The fenced blocks of that page in this language, a regular expression."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
