"""Options of the whole test suite, and its last words."""

import pytest
from left_out import pytest_deselected, pytest_terminal_summary

__all__ = ["pytest_addoption", "pytest_deselected", "pytest_terminal_summary"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the golden stories as they now come out; then read the diff",
    )
