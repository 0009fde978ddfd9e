"""`python -m floodmark.broker.check_config KEY=VALUE...` says whether a broker would accept these settings.

It starts no broker. Exit codes: 0 a broker would accept them; 2 it would not, and the reason is on stdout.
A broker's own settings (its id, its addresses, its folder) need not be named.

`python -m floodmark.broker.check_config --many` answers for many brokers at once: stdin is a JSON list of
lists of KEY=VALUE, stdout a JSON list of their reasons, null for settings that would be accepted.
"""

import json
import sys
from collections.abc import Sequence

from floodmark.broker.process_log import EXIT_CONFIG
from floodmark.broker.server.config import ConfigError, parse_config

SETTINGS_OF_EACH_BROKER = """
process.roles=broker
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092
controller.quorum.voters=100@127.0.0.1:9093
log.dirs=log
"""
MANY = "--many"
_PLACE = "--override: "


def find_problem(settings: Sequence[str]) -> str | None:
    """The broker's own error, or None if it would accept the settings. An unknown key is an error too."""
    try:
        _, warnings = parse_config(SETTINGS_OF_EACH_BROKER, "settings", settings)
    except ConfigError as error:
        return str(error).removeprefix(_PLACE)
    return warnings[0].removeprefix(_PLACE) if warnings else None


def main() -> int:
    if sys.argv[1:] == [MANY]:
        json.dump([find_problem(settings) for settings in json.load(sys.stdin)], sys.stdout)
        return 0
    why = find_problem(sys.argv[1:])
    if why is None:
        return 0
    sys.stdout.write(f"{why}\n")
    return EXIT_CONFIG


if __name__ == "__main__":
    sys.exit(main())
