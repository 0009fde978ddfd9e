"""Finds which faults a line of the history that cannot be read may have been.

It may have been a fault that lost data, or an unclean election, if it mentions the nemesis at all, unless its
f can be read and is harmless.
"""

import re

from floodmark.harness.faults import FAULTS, LOSES

_NEMESIS = re.compile(rb'"fault"|"lost"|"process"\s*:\s*-')
_CLEAN = re.compile(rb'"unclean"\s*:\s*false')
_F = re.compile(rb'"f"\s*:\s*"(\w+)"')


def faults_in(line: bytes) -> frozenset[str]:
    """The fs of the faults that it may be: all serious ones, if it has more faults than names (two lines may
    have become one)."""
    if not _NEMESIS.search(line):
        return frozenset()
    fs = [f for f in (found.decode() for found in _F.findall(line)) if f in FAULTS]
    named = frozenset(fs) - ({"elect"} if _CLEAN.search(line) else frozenset())
    if len(fs) >= max(1, line.count(b'"fault"')):
        return named
    return named | LOSES | ({"elect"} if b"unclean" in line else frozenset())
