"""What goes wrong in a command: an exit code and one sentence on stderr, never a traceback, never "invalid".

Rules
1. Off words are exit 2; all else that is no verdict is exit 4.
2. A bug of floodmark's own says so, where, and in which file its traceback was put.
"""

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Callable

import click

from harness.commands.harmless import harmless
from harness.errors import FloodmarkError, UsageError
from harness.verdict import EXIT_HARNESS, EXIT_USAGE


def code_of(command: Callable[[], int]) -> int:
    """What the command returns, or what its failure is worth."""
    try:
        code = command()
        sys.stdout.flush()  # a full disk or a reader that has gone shows here at the latest
        return code
    except UsageError as error:
        return told(str(error), EXIT_USAGE)
    except FloodmarkError as error:
        return told(str(error), EXIT_HARNESS)
    except KeyboardInterrupt:
        return told("interrupted", EXIT_HARNESS)
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        raise  # click's own way
    except OSError as error:
        if error.errno == errno.EPIPE:
            return deaf()
        where = f"{error.filename}: " if error.filename is not None else ""
        return told(f"{where}{error.strerror or error}", EXIT_HARNESS)
    except Exception as error:
        return told(own_bug(error), EXIT_HARNESS)


def told(sentence: str, code: int) -> int:
    click.echo(f"floodmark: {harmless(sentence)}", err=True)
    return code


def deaf() -> int:
    """Whoever read our output has gone (`| head`): nothing more can be said, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_HARNESS


def own_bug(error: Exception) -> str:
    """What broke and where; the traceback goes to a file, for whoever mends it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    sentence = f"a bug of floodmark's own: {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="floodmark-bug-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return sentence  # the disk may be what is wrong
    return f"{sentence}; its traceback is in {file.name}"
