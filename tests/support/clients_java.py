"""The ordinary calls of the Java client: a program of one file, with jars that Maven fetches once."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from client_calls import Row, a_topic

WAIT_S = 120.0
HERE = Path(__file__).parent / "java"
NEEDED = ("java", "javac", "mvn")


class NoJars(Exception):
    """Maven could not fetch the client."""


def missing() -> list[str]:
    return [name for name in NEEDED if shutil.which(name) is None]


def class_path() -> str:
    """The jars, from Maven's cache or its repository. Raises NoJars if neither has them."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        for how in (["-o"], []):
            done = subprocess.run(
                ["mvn", "-q", "-B", *how, "-f", str(HERE / "pom.xml"), "dependency:build-classpath",
                 f"-Dmdep.outputFile={file.name}"],
                capture_output=True, text=True, check=False, timeout=WAIT_S,
            )  # fmt: skip
            jars = Path(file.name).read_text(encoding="utf-8").strip()
            if not done.returncode and jars:
                return jars
    raise NoJars(f"Maven: {(done.stdout + done.stderr).strip()[-300:]}")


def rows(bootstrap: str) -> list[Row]:
    done = subprocess.run(
        ["java", "-cp", class_path(), str(HERE / "ClientCalls.java"), bootstrap, a_topic("java")],
        capture_output=True, text=True, check=True, timeout=WAIT_S,
    )  # fmt: skip
    version, *lines = done.stdout.splitlines()
    found = [line.split("\t") for line in lines]
    return [
        Row(client="Java kafka-clients", version=version, call=call, expected=expected, answer=answer,
            seconds=float(seconds))
        for call, expected, answer, seconds in found
    ]  # fmt: skip
