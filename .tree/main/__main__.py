"""Runs the console script `floodmark`, as `python -m floodmark`."""

from floodmark.harness.cli import main

if __name__ == "__main__":
    main()
