"""The ordinary calls of kcat."""

import re
import shutil
import subprocess
from collections.abc import Callable

from client_calls import COMPRESSIONS, NO_GROUPS, OK, Call, Row, Scene, play, scene

WAIT_S = 60.0
_WORDS = {"Group authorization failed": NO_GROUPS}  # librdkafka's words for the errors that are expected
KCAT = shutil.which("kcat")


def _kcat(at: Scene, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", at.bootstrap, *arguments],
        input=text, capture_output=True, text=True, check=False, timeout=WAIT_S,
    )  # fmt: skip
    for words, name in _WORDS.items():
        if done.returncode and words in done.stderr:
            return name
    assert not done.returncode, done.stderr
    return done.stdout


def _list(at: Scene) -> str:
    assert " 3 brokers:" in _kcat(at, "-L")
    return OK


def _make(at: Scene) -> str:
    """Makes the topic by asking for its metadata, as kcat does."""
    _kcat(at, "-P", "-t", at.topic, "-p", "0", text="first\n")
    assert f'topic "{at.topic}" with 1 partitions' in _kcat(at, "-L", "-t", at.topic)
    return OK


def _produce_and_read(compression: str) -> Callable[[Scene], str]:
    lines = "".join(f"{compression} " + "v" * 99 + f"{n}\n" for n in range(20))

    def run(at: Scene) -> str:
        _kcat(at, "-P", "-t", at.topic, "-p", "0", "-z", compression, "-X", "acks=all", text=lines)
        assert _kcat(at, "-C", "-t", at.topic, "-p", "0", "-o", "-20", "-e", "-q") == lines
        return OK

    return run


def _times(at: Scene) -> str:
    assert re.search(r"\[0\] offset 0$", _kcat(at, "-Q", "-t", f"{at.topic}:0:1"), re.MULTILINE)
    assert _kcat(at, "-C", "-t", at.topic, "-o", "s@1", "-c", "1", "-q") == "first\n"
    return OK


def _subscribe(at: Scene) -> str:
    return _kcat(at, "-G", "calls", at.topic)


CALLS = [
    Call(name="-L", expected=OK, run=_list),
    Call(name="-P to a topic that is not there", expected=OK, run=_make),
    *[Call(name=f"-P -z {each}, -C", expected=OK, run=_produce_and_read(each)) for each in COMPRESSIONS],
    Call(name="-Q, -C -o s@TIME", expected=OK, run=_times),
    Call(name="-G (subscribe)", expected=NO_GROUPS, run=_subscribe),
]


def version() -> str:
    output = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True, timeout=WAIT_S).stdout
    found = re.search(r"Version (\S+)", output)
    assert found, output
    return found[1]


def rows(bootstrap: str) -> list[Row]:
    return play("kcat", version(), CALLS, scene(bootstrap, "kcat"))
