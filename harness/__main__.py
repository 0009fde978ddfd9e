"""`python -m harness` is the console script `floodmark`."""

from harness.cli import main

if __name__ == "__main__":
    main()
