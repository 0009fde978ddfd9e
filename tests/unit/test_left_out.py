"""The end of a test run lists what was left out and why."""

import subprocess
import sys
from pathlib import Path

from left_out import kind_of, lines

SETUP = Path(__file__).parents[2] / "setup.cfg"
SUITE = '''
import pytest

@pytest.mark.docker
@pytest.mark.spark
def test_in_a_container(): ...

@pytest.mark.long
@pytest.mark.cluster
def test_a_night(): ...

@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("version", ["2.8.2", "4.3.1"])
def test_on_kafka(version): ...

@pytest.mark.kcat
@pytest.mark.skipif(True, reason="kcat is not installed")
def test_with_kcat(): ...

def test_plain(): ...
'''


def test_a_test_belongs_to_the_first_kind_among_its_markers() -> None:
    assert kind_of(["parametrize", "spark", "docker"]) == "docker"
    assert kind_of(["parametrize"]) == "other"


def test_nothing_left_out_is_reported_too() -> None:
    assert lines({}, [], "-m 'not docker'") == ["nothing"]


def test_a_run_reports_what_was_deselected_and_what_was_skipped(tmp_path: Path) -> None:
    """With the markers of setup.cfg and the hooks of the conftest, in its own process."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text("from left_out import *\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not docker and not kafka and not long",
         "-c", str(SETUP), "-p", "no:cacheprovider", "--rootdir", str(SETUP.parent),
         str(tmp_path / "test_suite.py")],
        capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    summary = ran.stdout.split("left out", 1)[1]
    selected = "-m 'not docker and not kafka and not long'"
    assert f"docker: 1 not selected ({selected}); they need a Docker engine" in summary
    assert f"long: 1 not selected ({selected}); they take long, and .ci/run runs them" in summary
    assert "kcat: 1 skipped: kcat is not installed" in summary
    assert "browser:" not in summary
    assert (f"kafka: 2 not selected ({selected}); they run Apache Kafka, whose jars Maven fetches once: "
            "make test-kafka (test_suite 2)") in summary
    assert "1 passed, 1 skipped, 4 deselected" in ran.stdout
