"""The command line of `floodmark`: its commands, their options and their help texts.

`main` is called only by the console script, `python -m floodmark.harness` and tests. A command imports its
function from harness/commands when it is called, so `--help` starts no cluster and no Spark. Begin with
main_command.py; options.py has the options and exits that several commands share.
"""

from floodmark.harness.cli.main_command import main

__all__ = ["main"]
