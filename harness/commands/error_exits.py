"""Turns what goes wrong in a command into an exit code and one sentence on stderr; never a traceback, never
"invalid".

Rules
1. Off words are exit 2; all else that is no verdict is exit 4.
2. A bug of floodmark's own says so, where, and in which file its traceback was put.
3. SIGTERM ends a command as Ctrl-C does: what was begun is tidied up on the way out, and nothing is left in
   the temporary folder. A second one does not disturb that.
"""

import errno
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.reports.safe_text import harmless
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_USAGE


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def raised_by_sigterm() -> Iterator[None]:
    """Meanwhile SIGTERM raises Terminated; then it does again what it did. (Only a main thread may say what a
    signal does.)"""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    with sigterm_kept():
        signal.signal(signal.SIGTERM, end)
        yield


@contextmanager
def sigterm_kept() -> Iterator[None]:
    """What SIGTERM does now it does again afterwards. To stand round every event loop that takes the signal
    for itself: when such a loop is closed, the signal would simply end the process."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def code_of(command: Callable[[], int]) -> int:
    """What the command returns, or what its failure is worth."""
    with raised_by_sigterm():
        return _code_of(command)


def _code_of(command: Callable[[], int]) -> int:
    try:
        code = command()
        sys.stdout.flush()  # a full disk or a reader that has gone shows here at the latest
        return code
    except UsageError as error:
        return complain(str(error), EXIT_USAGE)
    except FloodmarkError as error:
        return complain(str(error), EXIT_HARNESS)
    except KeyboardInterrupt as interrupt:
        catalog.leave_judge()
        word = "ended by SIGTERM" if isinstance(interrupt, Terminated) else "interrupted"
        return complain(word, EXIT_HARNESS)
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        raise  # click's own way
    except OSError as error:
        if error.errno == errno.EPIPE:
            return pipe_is_closed()
        where = f"{error.filename}: " if error.filename is not None else ""
        return complain(f"{where}{error.strerror or error}", EXIT_HARNESS)
    except Exception as error:
        return complain(own_bug(error), EXIT_HARNESS)


def complain(sentence: str, code: int) -> int:
    click.echo(f"floodmark: {harmless(sentence)}", err=True)
    return code


def pipe_is_closed() -> int:
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
