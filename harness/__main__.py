"""`python -m harness` is the console script `floodmark`; so is this file, given to spark-submit."""

import sys
from pathlib import Path

# A file that is run by its path has its own folder first on the module path: trace.py would shadow another's.
if sys.path and __package__ in (None, "") and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]

from floodmark.harness.cli import main

if __name__ == "__main__":
    main()
