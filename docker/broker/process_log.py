"""Writes one line per event on stdout, and halts the process when it must not go on."""

import contextlib
import datetime
import os
import sys
from collections.abc import Callable
from typing import NoReturn

EXIT_CONFIG = 2
EXIT_BROKEN = 70  # a broken invariant, a disk that refuses: the process must not go on
_calls_before_halt: list[Callable[[str], None]] = []


def log(level: str, event: str, **fields: object) -> None:
    """Write `time level event key=value ...`; a value with a space in it is quoted."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    words = "".join(f" {key}={_format_value(value)}" for key, value in fields.items())
    print(f"{stamp} {level} {event}{words}", flush=True)


def _format_value(value: object) -> str:
    text = str(value).replace("\n", " | ")
    return f'"{text}"' if " " in text else text


def call_before_halt(act: Callable[[str], None]) -> None:
    """Register a call to be made, with the reason, when the process halts itself."""
    _calls_before_halt.append(act)


def halt_process(event: str, error: BaseException) -> NoReturn:
    """Log the error and end the process at once: nothing half-done is answered or written."""
    log("error", event, error=f"{type(error).__name__}: {error}", where=_innermost_frames(error))
    for act in _calls_before_halt:
        with contextlib.suppress(Exception):
            act(event)
    sys.stdout.flush()
    os._exit(EXIT_BROKEN)


def _innermost_frames(error: BaseException) -> str:
    """File, line and function of the innermost frames."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno}({code.co_name})")
        trace = trace.tb_next
    return "<".join(reversed(frames[-4:]))
