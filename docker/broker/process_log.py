"""Writes one line per event, and halts the process when it must not go on."""

import contextlib
import datetime
import os
from typing import NoReturn

from floodmark.broker import runtime

EXIT_CONFIG = 2
EXIT_BROKEN = 70  # a broken invariant, a disk that refuses: the process must not go on


def log(level: str, event: str, **fields: object) -> None:
    """Write `time level event key=value ...`; a value with a space in it is quoted."""
    now = datetime.datetime.fromtimestamp(runtime.current.time_ns() / 1e9, datetime.UTC)
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    words = "".join(f" {key}={_format_value(value)}" for key, value in fields.items())
    runtime.current.write_line(f"{stamp} {level} {event}{words}")


def _format_value(value: object) -> str:
    text = str(value).replace("\n", " | ")
    return f'"{text}"' if " " in text else text


def halt_process(event: str, error: BaseException) -> NoReturn:
    """Log the error and end the process at once: nothing half-done is answered or written."""
    log("error", event, error=f"{type(error).__name__}: {error}", where=_innermost_frames(error))
    for act in runtime.current.calls_before_halt():
        with contextlib.suppress(Exception):
            act(event)
    runtime.current.exit(EXIT_BROKEN)


def _innermost_frames(error: BaseException) -> str:
    """File, line and function of the innermost frames."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno}({code.co_name})")
        trace = trace.tb_next
    return "<".join(reversed(frames[-4:]))
