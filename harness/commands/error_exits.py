"""Turns a command's errors into an exit code and one sentence on stderr, never a traceback or "invalid".

Rules
1. Wrong arguments are exit 2; everything else that is no verdict is exit 4, which hides no bug that was found
   and could not be printed.
2. A bug of floodmark itself is reported as one, with its place and the file of its traceback.
3. SIGTERM ends a command like Ctrl-C: unfinished work is cleaned up, and nothing is left in the temporary
   folder. A second SIGTERM does not interrupt that.
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
from typing import cast

import click

from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError, NotPrinted, UsageError
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_USAGE, worst


class Terminated(KeyboardInterrupt):
    """SIGTERM came. (After a plain KeyboardInterrupt in a code that was made from a text, as a dataclass is
    at its import, `python -m` ends by SIGINT, whatever exit code it is given: CPython, run_eval_code_obj.)"""


@contextmanager
def raised_by_sigterm() -> Iterator[None]:
    """A context in which SIGTERM raises Terminated. (Only a main thread can set handlers.)"""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated("ended by SIGTERM")

    from floodmark.harness.event_loop import sigterm_handler_restored  # imports asyncio: not for --help

    with sigterm_handler_restored():
        signal.signal(signal.SIGTERM, end)
        yield


def code_of(command: Callable[[], int]) -> int:
    with raised_by_sigterm():
        try:
            code = command()
            sys.stdout.flush()  # a full disk or a closed pipe shows here at the latest
            return code
        except FloodmarkError as error:
            return complain(str(error), EXIT_USAGE if isinstance(error, UsageError) else EXIT_HARNESS)
        except KeyboardInterrupt as interrupt:
            catalog.stop_judge()
            return complain(str(interrupt) or "interrupted", EXIT_HARNESS)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise  # click's own error
        except NotPrinted as unprinted:
            return worst([unprinted.code, failed_by(cast(OSError, unprinted.__cause__))])
        except OSError as error:
            return failed_by(error)
        except Exception as error:
            return complain(own_bug(error), EXIT_HARNESS)


def failed_by(error: OSError) -> int:
    if error.errno == errno.EPIPE:  # `| head`: nothing more can be printed, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_HARNESS
    where = f"{error.filename}: " if error.filename is not None else ""
    return complain(f"{where}{error.strerror or error}", EXIT_HARNESS)


def complain(sentence: str, code: int) -> int:
    click.echo(f"floodmark: {escape_controls(sentence)}", err=True)
    return code


def own_bug(error: Exception) -> str:
    """A sentence about a bug of floodmark itself; its traceback goes to a file."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    sentence = f"a bug of floodmark's own: {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="floodmark-bug-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return sentence  # the disk may be the problem
    return f"{sentence}; its traceback is in {file.name}"
