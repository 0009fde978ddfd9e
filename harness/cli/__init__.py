"""The command line of `floodmark`: commands, options and their help; each command is a function elsewhere.

Only the console script, `python -m floodmark.harness` and tests enter, by `main`. A command imports its
function from harness/commands when it is called, so `--help` starts no cluster and no Spark. Begin with
main_command.py; campaign.py and cluster.py have the groups of these names, options.py what several commands
share: options, and how a command ends.
"""

from floodmark.harness.cli.main_command import main

__all__ = ["main"]
