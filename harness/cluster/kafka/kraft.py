"""Apache Kafka in KRaft mode: one controller, n brokers, their settings and formatted folders.

Rules
1. The controller is a process of its own: killing a leader never kills the quorum's leader too.
2. Only the controller's folder is formatted; the brokers get copies with their own ids. It is not a broker's,
   because 4.4 writes some features only on controllers.
3. When a broker answers, its features are compared with the formatted ones, and no broker counts as unfenced
   before that: with a feature missing, for example ELR, it would be another Kafka without anybody noticing.
4. If the harness cannot write to a broker's folder (a volume of its container), the broker's command copies a
   formatted folder there before Kafka starts, unless the folder is formatted already.
5. A feature (KIP-584) is given like a setting, by name and level, and is passed to the format command. A
   feature that a version does not have need not be turned off.
6. Since 3.9 (KIP-853) a broker that has to connect again goes to the address that the controller advertises,
   not to that of controller.quorum.voters. So the controller advertises its name, as brokers do: otherwise a
   broker that is cut from it would still hear its decisions.
"""

import asyncio
import re
import secrets
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from floodmark.harness.client.codec import TopicPartition
from floodmark.harness.client.connection import Unsent, connect
from floodmark.harness.cluster.broker_requests import finalized_features, once
from floodmark.harness.cluster.kafka import metadata_log, settings
from floodmark.harness.cluster.kafka.distribution import Distribution, archive_options, release_of
from floodmark.harness.cluster.layout import NOT_STARTED, Layout, host_port, write_properties
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import Expires
from floodmark.harness.schedule.views import CONTROLLER

FORMAT_TIMEOUT_S = 120.0
ASK_S = 2.0
META, PREPARED = "meta.properties", "meta.properties.prepared"
# Arguments: PREPARED LOG_DIR COMMAND... meta.properties gets its name only when all else is synced.
_TAKE_FOLDER = """if [ ! -e "$1/meta.properties" ]; then
  cp -R "$0/." "$1/" && sync "$1"/* "$1" && mv "$1/meta.properties.prepared" "$1/meta.properties" && sync "$1"
fi && shift && exec "$@"
"""
FEATURES = frozenset({
    "eligible.leader.replicas.version", "group.version", "kraft.version", "metadata.version",
    "share.version", "streams.version", "transaction.version",
})
FIRST_ADVERTISED = (3, 9)  # older controllers refuse advertised.listeners
ELR, FIRST_WITH_ELR = "eligible.leader.replicas.version", (4, 0)  # KIP-966; on in new clusters from 4.1

PREFERRED: Mapping[str, str] = {
    **settings.PREFERRED,
    "broker.heartbeat.interval.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
    "log.index.size.max.bytes": "1048576",
}


class KRaft:
    """Kafka in KRaft mode. What its process `controller` wrote decides who leads, and is the truth."""

    name = "kraft"  # run.json's `system.form`
    controller_decides = True  # whether the process `controller` decides; else a broker does
    # What a broker logs while it waits for its controller, and if its log directory is another cluster's.
    waiting_line = "Waiting for the controller to acknowledge that we are caught up"
    other_cluster_line = "because the controller returned error INCONSISTENT_CLUSTER_ID"

    def __init__(self, kafka: Distribution, given: Mapping[str, str], ids: Mapping[str, int]) -> None:
        self._features = {key: level for key, level in given.items() if key in FEATURES
                          and not ((key, level) == (ELR, "0") and release_of(kafka.version) < FIRST_WITH_ELR)}
        self.about: Mapping[str, Any] = {"features": self._features} if self._features else {}
        chosen = {**PREFERRED, **{key: value for key, value in given.items() if key not in FEATURES}}
        self.settings: Mapping[str, str] = dict(sorted(chosen.items()))
        self.lacks: Mapping[type, str] = {
            Expires: "in KRaft mode a broker has no session that can be ended, it sends heartbeats: "
                     "pause it, or cut it from the controller, for longer than broker.session.timeout.ms"}
        self._kafka = kafka
        self._nodes = {number: name for name, number in ids.items() if name != CONTROLLER}
        self._layout = NOT_STARTED
        self._log: metadata_log.MetadataLog | None = None
        self._template: Path | None = None
        self._features_asserted = False

    def write_files(self, layout: Layout) -> None:
        self._layout = layout
        layout.make_folders()
        for name in layout.names:
            write_properties(
                layout.properties_of(name), {**self._place_of(name), **self.settings}, escapes=True)
        home = layout.places[CONTROLLER].log_dir
        self._format(home)
        self._template = shutil.copytree(home, layout.work("formatted"))
        for node in layout.nodes:
            self._make_folder(node)
        self._log = metadata_log.MetadataLog(home)

    def _place_of(self, name: str) -> dict[str, str]:
        place = self._layout.places[name]
        controller = self._layout.places[CONTROLLER]
        lines = {
            "node.id": str(place.node_id),
            "controller.quorum.voters": f"{controller.node_id}@{host_port(place.controller)}",
            "controller.listener.names": "CONTROLLER"}
        if not place.is_controller:
            return {"process.roles": "broker", **lines, **settings.of_broker(self._layout, name)}
        lines |= {
            "process.roles": "controller", "log.dirs": place.inside(place.log_dir),
            "listener.security.protocol.map": settings.LISTENERS,
            "listeners": f"CONTROLLER://{host_port(place.listens)}"}
        if release_of(self._kafka.version) >= FIRST_ADVERTISED:
            advertised = settings.advertised_to_brokers(self._layout, name)
            lines["advertised.listeners"] = f"CONTROLLER://{host_port(advertised)}"
        return lines

    def _format(self, home: Path) -> None:
        """With its settings, and with the folder's path on this machine."""
        properties = self._layout.work("format.properties")
        write_properties(properties, {**self._place_of(CONTROLLER), "log.dirs": str(home), **self.settings},
                         escapes=True)
        cluster_id = urlsafe_b64encode(b"F" + secrets.token_bytes(15)).decode().rstrip("=")
        java = [str(self._kafka.java), *settings.JVM, *archive_options(self._kafka)]
        argv = [*java, "-cp", self._kafka.classpath, "kafka.tools.StorageTool", "format", "-t", cluster_id,
                "-c", str(properties), *self.feature_options()]
        try:
            ran = subprocess.run(argv, capture_output=True, text=True, check=False,
                                 timeout=FORMAT_TIMEOUT_S, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FloodmarkError(f"Kafka {self._kafka.version} could not format its folder: {error}"
                                 ) from error
        if ran.returncode != 0:
            lines = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
            errors = [line for line in lines if "Exception" in line or line.lower().startswith("error")]
            raise FloodmarkError(f"Kafka {self._kafka.version} does not start with these settings: "
                                 f"{(errors or lines or ['it printed nothing'])[0][:500]}")

    def feature_options(self) -> list[str]:
        return [word for name, level in self._features.items() for word in ("--feature", f"{name}={level}")]

    def _make_folder(self, node: str) -> None:
        """With the node's own id and a new directory id; in FOLDER/work, if it is copied to a container."""
        assert self._template is not None
        place = self._layout.places[node]
        copied = place.log_dir_copied
        folder = self._layout.work(f"{node}.prepared") if copied else place.log_dir
        shutil.copytree(self._template, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(META))
        directory = urlsafe_b64encode(b"F" + secrets.token_bytes(15)).decode().rstrip("=")
        text = (self._template / META).read_text(encoding="utf-8")
        text = re.sub(r"(?m)^node\.id=.*$", f"node.id={place.node_id}", text)
        text = re.sub(r"(?m)^directory\.id=.*$", f"directory.id={directory}", text)
        (folder / (PREPARED if copied else META)).write_text(text, encoding="utf-8")

    def before(self, name: str) -> Sequence[str]:
        """A command that execs its arguments; may be empty."""
        place = self._layout.places[name]
        if not place.log_dir_copied:
            return ()
        return ("sh", "-c", _TAKE_FOLDER, place.inside(self._layout.work(f"{name}.prepared")),
                place.inside(place.log_dir))

    def main(self, name: str) -> str:
        return "kafka.Kafka"

    async def starting(self, name: str) -> None:
        """Formats the folder of a broker whose disk was emptied, as an operator would."""
        place = self._layout.places[name]
        if name != CONTROLLER and (place.log_dir_copied or not (place.log_dir / META).exists()):
            self._make_folder(name)

    async def controller_is_up(self) -> bool:
        try:
            connection = await connect(*self._layout.places[CONTROLLER].reached, ASK_S)
        except (Unsent, TimeoutError):
            return False
        connection.close()
        return True

    async def expire(self, node: str, places: Sequence[TopicPartition], awake: Sequence[str]) -> None:
        raise FloodmarkError(self.lacks[Expires])

    async def admin(self, running: Sequence[str]) -> Sequence[str]:  # whom to ask, best first
        """Every running broker forwards requests to the controller; one that is fenced may be cut off."""
        state = await self.controller_state(())
        unfenced = {self._nodes.get(broker) for broker in state.unfenced} if state is not None else set()
        return sorted(running, key=lambda node: node not in unfenced)

    async def controller_state(self, places: Sequence[TopicPartition]) -> metadata_log.ControllerState | None:
        """The decisions by the controller's log on disk, which has them before anybody learns of them. It is
        read even if the controller is stopped or dead, because nobody else decides."""
        if self._log is None:
            return None
        decisions = await asyncio.to_thread(self._log.decisions)
        unfenced = sorted(broker for broker, fenced in decisions.fenced.items() if not fenced)
        if not self._features_asserted:
            self._features_asserted = await self._has_formatted_features(
                [self._nodes[broker] for broker in unfenced if broker in self._nodes])
        return metadata_log.ControllerState(partitions=decisions.by_name(),
                               unfenced=unfenced if self._features_asserted else ())

    async def _has_formatted_features(self, unfenced: Sequence[str]) -> bool:
        """Whether one of them has answered with its features. FloodmarkError if they are others."""
        assert self._template is not None
        for node in unfenced:
            try:
                finalized = await finalized_features(once(self._layout.places[node].asked), timeout_s=ASK_S)
            except FloodmarkError:
                continue  # it does not listen yet
            if finalized is not None:
                metadata_log.refuse_other_features(
                    metadata_log.formatted_features(self._template), finalized, self._kafka.version)
                return True
        return False

    async def close(self) -> None: ...

