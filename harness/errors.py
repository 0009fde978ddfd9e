"""The one family of errors a user may see: what was tried, what went wrong, what to do."""


class FloodmarkError(Exception):
    """An operating error (not a bug of ours): shown as one sentence, never as a traceback. Exit code 4."""


class UsageError(FloodmarkError):
    """The call's words are off: exit code 2."""


class UnfitCluster(UsageError):
    """What is asked for is right, and this cluster cannot do it: it lacks an ability. The text says which."""
