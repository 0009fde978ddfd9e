"""Puts the bug that FLOODMARK_HUNT names into `python -m floodmark.broker`, before the broker is imported, or
into the process that makes simulated runs."""

import os
import sys

PLAYER = ["floodmark.harness.commands.campaign_processes", "play"]

if os.environ.get("FLOODMARK_HUNT") and ("floodmark.broker" in sys.orig_argv or sys.orig_argv[-2:] == PLAYER):
    sys.path.insert(0, os.path.dirname(os.path.dirname(__file__)))
    import bugs
    import fresh_bugs  # noqa: F401  (`install` looks for it when this path is gone)

    sys.path.pop(0)
    bugs.install(os.environ["FLOODMARK_HUNT"])
