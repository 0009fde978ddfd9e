"""Puts the bug that FLOODMARK_HUNT names into `python -m floodmark.broker`, before the broker is imported."""

import os
import sys

if os.environ.get("FLOODMARK_HUNT") and "floodmark.broker" in sys.orig_argv:
    sys.path.insert(0, os.path.dirname(os.path.dirname(__file__)))
    import bugs
    import fresh_bugs  # noqa: F401  (`install` looks for it when this path is gone)

    sys.path.pop(0)
    bugs.install(os.environ["FLOODMARK_HUNT"])
