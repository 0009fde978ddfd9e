"""Runs a process of `python -m floodmark.broker`: reads its config and runs one broker, or the controller.

Exit codes: 0 a clean shutdown, 2 a config that is refused, 70 a broken invariant or a disk that refuses.
"""

import argparse
import asyncio
import gc
from pathlib import Path
from typing import Any

from floodmark.broker.process_log import EXIT_BROKEN, EXIT_CONFIG, halt_process, log
from floodmark.broker.server.broker_server import BrokerServer
from floodmark.broker.server.config import Config, ConfigError, load_config
from floodmark.broker.server.controller_server import ControllerServer
from floodmark.broker.storage.checkpoint_files import CheckpointError
from floodmark.broker.storage.controller_journal import JournalError
from floodmark.broker.storage.log_directory import DiskError


def _handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Halt after a callback that raised, which left something half-done; only log anything else."""
    error = context.get("exception")
    if isinstance(error, Exception) and ("handle" in context or "protocol" in context):
        halt_process("callback-failed", error)
    log("warning", "event-loop", message=context.get("message"), error=error)


async def run_process(config: Config) -> int:
    """Run the broker, or the controller, to its end; returns the exit code."""
    asyncio.get_running_loop().set_exception_handler(_handle_loop_exception)
    try:
        await (BrokerServer(config) if config.role == "broker" else ControllerServer(config)).run()
    except (OSError, DiskError, CheckpointError, JournalError) as error:
        log("error", "cannot-go-on", why=f"{type(error).__name__}: {error}")
        return EXIT_BROKEN
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m floodmark.broker", description="One broker, or the controller."
    )
    parser.add_argument("--config", type=Path, required=True, help="a Kafka properties file")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property that overrides the file's; may be given again",
    )
    arguments = parser.parse_args()
    try:
        config, warnings = load_config(arguments.config, arguments.override)
    except ConfigError as error:
        log("error", "config", why=error)
        return EXIT_CONFIG
    for warning in warnings:
        log("warning", "config", why=warning)
    gc.set_threshold(50_000, 20, 100)  # few cycles are made here, and each search for them is a pause
    return asyncio.run(run_process(config))
