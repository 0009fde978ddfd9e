"""What takes the place of a power cut where none can be played yet."""

from collections.abc import Mapping
from pathlib import Path

from floodmark.harness.cluster.log_extents import Lost
from floodmark.harness.errors import FloodmarkError

WHY_NOT = "no power cut is played on Apache Kafka's logs yet"


class NoPowerLoss:
    """See harness.cluster.system: PowerLoss. The system lacks PowerCuts and Wipes, so nobody asks."""

    def power_cut(self, durable_file: Path, log_dir: Path, *, keep: Mapping[str, int] | None = None) -> Lost:
        raise FloodmarkError(WHY_NOT)

    def wipe(self, durable_file: Path, log_dir: Path) -> Lost:
        raise FloodmarkError(WHY_NOT)

    def start_anew(self, durable_file: Path) -> None:
        pass

    def fsynced(self, durable_file: Path) -> Mapping[str, int] | None:
        return None
