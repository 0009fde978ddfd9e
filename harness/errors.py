"""The errors that users see: each says what was tried, what went wrong, and what to do."""


class FloodmarkError(Exception):
    """An operating error, not a bug in floodmark: shown as one sentence without a traceback. Exit code 4."""


class WrongDisk(FloodmarkError):
    """A broker cannot join its cluster because its files are another cluster's: not the broker's bug."""


class UsageError(FloodmarkError):
    """The command line or an input file is wrong: exit code 2."""


class UnfitCluster(UsageError):
    """The request is valid, but this cluster lacks an ability that it needs; the message names it."""
