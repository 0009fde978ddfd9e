"""Runs the console script `floodmark`, as `python -m floodmark.harness` or as a file given to
spark-submit."""

import sys
from pathlib import Path

# For a file that is run by its path, Python puts its folder first on the module path: there trace.py would
# shadow the standard library's.
if sys.path and __package__ in (None, "") and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]

from floodmark.harness.cli import main

if __name__ == "__main__":
    main()
