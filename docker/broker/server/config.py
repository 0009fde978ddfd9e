"""Reads a Kafka properties file into one frozen value, or raises an error that names the file and the line.

Rules
1. Kafka's keys keep Kafka's names, meanings and defaults; ours begin with `floodmark.` (docker/README.md
   lists all).
2. An unknown key is a warning, never an error: a broker's own properties file should start this one too.
3. Settings that cannot work together are refused here, and nowhere later.
4. An override, as of kafka-server-start.sh, takes precedence over the file; errors say which of them it was.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

from floodmark.broker.testing.bugs import rules_for
from floodmark.broker.testing.failpoint_requests import FailpointError, parse_arms, parse_failpoint_setting

CLUSTER_ID = "floodmark"
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
Address = tuple[str, int]
KeyPlace = tuple[int, str]  # where a key was given: its position among all lines, and its place in words


class ConfigError(Exception):
    """The settings cannot be served; the text says which line and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One process's settings. Times are milliseconds, sizes bytes."""

    role: str  # broker or controller
    node_id: int
    listen: Address
    advertised: Address
    controller_id: int
    controller: Address  # where a broker connects to it; the controller's own address is `listen`
    log_dir: Path
    session_timeout_ms: int = 9_000
    heartbeat_interval_ms: int = 2_000
    replica_lag_time_max_ms: int = 30_000
    fetch_wait_max_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 1_048_576
    fetch_backoff_ms: int = 1_000
    socket_timeout_ms: int = 30_000
    min_insync_replicas: int = 1
    default_replication_factor: int = 1
    num_partitions: int = 1
    unclean_leader_election: bool = False
    auto_create_topics: bool = True
    hw_checkpoint_interval_ms: int = 5_000
    flush_messages: int = LONG_MAX
    segment_bytes: int = 1_073_741_824
    request_max_bytes: int = 104_857_600
    message_max_bytes: int = 1_048_588
    rules: str = "kip-320"
    bugs: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    control: Address | None = None
    control_from: tuple[str, ...] = ()  # IP addresses that may connect to it; none: any address
    dial: tuple[tuple[int, Address], ...] = ()
    durable: Path | None = None
    trace: Path | None = None
    failpoints: tuple[Mapping[str, object], ...] = ()  # requests to arm, as on the control socket

    def describe_kafka_keys(self) -> list[tuple[str, str, str | None]]:
        """List Kafka's keys with their values and defaults (None: there is none), as text."""
        defaults = {each.name: each.default for each in fields(Config)}
        return [
            (
                key,
                _format_value(getattr(self, field)),
                None if defaults[field] is MISSING else _format_value(defaults[field]),
            )
            for key, (field, _) in sorted(_KEYS.items())
            if not key.startswith("floodmark.") and key != "controller.quorum.voters"
        ]

    def address_to_dial(self, node_id: int, advertised: Address) -> Address:
        """The address at which to reach a node: its link if there is one (floodmark.dial), else its
        listener."""
        for known, address in self.dial:
            if known == node_id:
                return address
        return advertised


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"PLAINTEXT://{value[0]}:{value[1]}"
    return str(value)


# -- values: text -> value, or ValueError saying what is wanted -------------------------------------------


def _parse_integer(least: int, most: int = INT_MAX) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text.replace("_", "x"))  # int() would accept 1_000
        except ValueError:
            raise ValueError(f"a whole number is expected, not {text!r}") from None
        if not least <= value <= most:
            raise ValueError(f"{value} is not within {least} and {most}")
        return value

    return read


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"true or false is expected, not {text!r}")
    return text.lower() == "true"


def _parse_role(text: str) -> str:
    if text not in ("broker", "controller"):
        raise ValueError(f"broker or controller is wanted (one process is one of them), not {text!r}")
    return text


def _parse_address(text: str) -> Address:
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"HOST:PORT is expected, not {text!r}")
    return host, int(port)


def _parse_listener(text: str) -> Address:
    if "," in text:
        raise ValueError("one listener is served, not several")
    scheme, separator, _ = text.rpartition("://")
    if separator and scheme.upper() not in ("PLAINTEXT", "CONTROLLER"):
        raise ValueError(f"only PLAINTEXT is served, not {scheme}")
    return _parse_address(text)


def _parse_node(text: str) -> tuple[int, Address]:
    node_id, at, address = text.partition("@")
    if not at or not node_id.isascii() or not node_id.isdigit():
        raise ValueError(f"ID@HOST:PORT is expected, not {text!r}")
    return int(node_id), _parse_address(address)


def _parse_one_node(text: str) -> tuple[int, Address]:
    if "," in text:
        raise ValueError("there is one controller, not several")
    return _parse_node(text)


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _parse_nodes(text: str) -> tuple[tuple[int, Address], ...]:
    return tuple(_parse_node(each) for each in _parse_names(text))


def _parse_hosts(text: str) -> tuple[str, ...]:
    for name in _parse_names(text):
        try:
            ipaddress.ip_address(name)
        except ValueError:
            raise ValueError(f"IP addresses are wanted, not {name!r}") from None
    return _parse_names(text)


def _parse_folder(text: str) -> Path:
    if "," in text:
        raise ValueError("one log directory is served, not several")
    if not text:
        raise ValueError("a folder is wanted")
    return Path(text)


# key -> (field of Config, parser)
_KEYS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "process.roles": ("role", _parse_role),
    "node.id": ("node_id", _parse_integer(0)),
    "listeners": ("listen", _parse_listener),
    "advertised.listeners": ("advertised", _parse_listener),
    "controller.quorum.voters": ("controller", _parse_one_node),
    "log.dirs": ("log_dir", _parse_folder),
    "broker.session.timeout.ms": ("session_timeout_ms", _parse_integer(1)),
    "broker.heartbeat.interval.ms": ("heartbeat_interval_ms", _parse_integer(1)),
    "replica.lag.time.max.ms": ("replica_lag_time_max_ms", _parse_integer(1)),
    "replica.fetch.wait.max.ms": ("fetch_wait_max_ms", _parse_integer(0)),
    "replica.fetch.min.bytes": ("fetch_min_bytes", _parse_integer(0)),
    "replica.fetch.max.bytes": ("fetch_max_bytes", _parse_integer(1)),
    "replica.fetch.backoff.ms": ("fetch_backoff_ms", _parse_integer(0)),
    "replica.socket.timeout.ms": ("socket_timeout_ms", _parse_integer(1)),
    "min.insync.replicas": ("min_insync_replicas", _parse_integer(1)),
    "default.replication.factor": ("default_replication_factor", _parse_integer(1)),
    "num.partitions": ("num_partitions", _parse_integer(1)),
    "unclean.leader.election.enable": ("unclean_leader_election", _parse_boolean),
    "auto.create.topics.enable": ("auto_create_topics", _parse_boolean),
    "replica.high.watermark.checkpoint.interval.ms": ("hw_checkpoint_interval_ms", _parse_integer(1)),
    "log.flush.interval.messages": ("flush_messages", _parse_integer(1, LONG_MAX)),
    "log.segment.bytes": ("segment_bytes", _parse_integer(1)),
    "socket.request.max.bytes": ("request_max_bytes", _parse_integer(1)),
    "message.max.bytes": ("message_max_bytes", _parse_integer(1)),
    "floodmark.rules": ("rules", str),
    "floodmark.bugs": ("bugs", _parse_names),
    "floodmark.switches": ("switches", _parse_names),
    "floodmark.control": ("control", _parse_address),
    "floodmark.control.from": ("control_from", _parse_hosts),
    "floodmark.dial": ("dial", _parse_nodes),
    "floodmark.durable": ("durable", Path),
    "floodmark.trace": ("trace", Path),
    "floodmark.failpoints": ("failpoints", parse_failpoint_setting),
}
_REQUIRED = ("process.roles", "node.id", "listeners", "log.dirs")


def parse_value(key: str, text: str) -> object:
    """Parse the value of a key that a broker knows. ValueError says what is expected."""
    return _KEYS[key][1](text)


def read_properties(text: str) -> list[tuple[int, str, str]]:
    """Read the lines of a properties file as (line number, key, value): `#` and `!` begin comments, `=` or
    `:` separates key and value, a backslash at the end joins the next line."""
    found: list[tuple[int, str, str]] = []
    begun, number = "", 0
    for position, raw in enumerate(text.splitlines(), 1):
        line = begun + raw.strip()
        number = number if begun else position
        if not line or (not begun and line[0] in "#!"):
            continue
        if line.endswith("\\"):
            begun = line[:-1]
            continue
        begun = ""
        cut = min((line.find(mark) for mark in "=:" if mark in line), default=len(line))
        found.append((number, line[:cut].strip(), line[cut + 1 :].strip()))
    if begun:
        found.append((number, begun.strip(), ""))
    return found


def load_config(path: Path, overrides: Sequence[str] = ()) -> tuple[Config, list[str]]:
    """Load the config in this file, with overrides (KEY=VALUE): (config, warnings)."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return parse_config(text, str(path), overrides)


def parse_config(text: str, name: str, overrides: Sequence[str] = ()) -> tuple[Config, list[str]]:
    """Parse the config in this text: (config, warnings). `name` is the file's name in both."""
    values, places, warnings = _read_values(text, name, overrides)
    for key in _REQUIRED:
        if key not in places:
            raise ConfigError(f"{name}: {key} is missing")
    config = _build_config(values, name)
    try:
        rules_for(config.rules, config.bugs, config.switches)
    except ValueError as error:
        place = _last_place(places, name, "floodmark.rules", "floodmark.bugs", "floodmark.switches")
        raise ConfigError(f"{place}: {error}") from None
    try:
        parse_arms(config.failpoints, config.role)
    except FailpointError as error:
        at = f"{places['floodmark.failpoints'][1]}: floodmark.failpoints"
        raise ConfigError(f"{at}{error}") from None
    _check_consistency(config, name, places)
    return config, warnings


def _read_values(
    text: str, name: str, overrides: Sequence[str]
) -> tuple[dict[str, object], dict[str, KeyPlace], list[str]]:
    """(values by field, where each key was given last, warnings)."""
    values: dict[str, object] = {}
    places: dict[str, KeyPlace] = {}
    warnings: list[str] = []
    lines = [(f"{name}:{number}", key, value) for number, key, value in read_properties(text)]
    given = lines + [("--override", *_split_override(each)) for each in overrides]
    for position, (place, key, value) in enumerate(given):
        if key not in _KEYS:
            warnings.append(f"{place}: unknown key {key}")
            continue
        if key in places and position < len(lines):
            before = places[key][1].rpartition(":")[2]
            warnings.append(f"{place}: {key} was given before, on line {before}; this one rules")
        field, read = _KEYS[key]
        try:
            values[field] = read(value)
        except ValueError as error:
            raise ConfigError(f"{place}: {key}: {error}") from None
        places[key] = position, place
    return values, places, warnings


def _split_override(given: str) -> tuple[str, str]:
    key, equals, value = given.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--override: KEY=VALUE is expected, not {given!r}")
    return key.strip(), value.strip()


def _last_place(places: Mapping[str, KeyPlace], name: str, *keys: str) -> str:
    """Where the last of these keys was given; the file if none was."""
    return max(places.get(key, (-1, name)) for key in keys)[1]


def _build_config(values: dict[str, object], name: str) -> Config:
    voter = values.pop("controller", None)
    if isinstance(voter, tuple):
        values["controller_id"], values["controller"] = voter
    elif values["role"] == "broker":
        raise ConfigError(f"{name}: controller.quorum.voters is missing: a broker must know its controller")
    else:
        values["controller_id"], values["controller"] = values["node_id"], values["listen"]
    values.setdefault("advertised", values["listen"])
    known = {field.name for field in fields(Config)}
    return Config(**{key: value for key, value in values.items() if key in known})  # type: ignore[arg-type]


def _check_consistency(config: Config, name: str, places: Mapping[str, KeyPlace]) -> None:
    """Refuse what Kafka refuses: a fetch that may wait longer than a follower may lag never catches up."""

    def require_at_most(short: str, small: int, long: str, large: int) -> None:
        if small > large:
            place = _last_place(places, name, short, long)
            raise ConfigError(f"{place}: {short} ({small}) may not be above {long} ({large})")

    if config.role != "broker":
        return
    if config.node_id == config.controller_id:
        raise ConfigError(f"{places['node.id'][1]}: node.id {config.node_id} is the controller's")
    wait = ("replica.fetch.wait.max.ms", config.fetch_wait_max_ms)
    require_at_most(*wait, "replica.socket.timeout.ms", config.socket_timeout_ms)
    require_at_most(*wait, "replica.lag.time.max.ms", config.replica_lag_time_max_ms)
    require_at_most(
        "broker.heartbeat.interval.ms",
        config.heartbeat_interval_ms,
        "broker.session.timeout.ms",
        config.session_timeout_ms,
    )
