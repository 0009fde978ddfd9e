"""The program in the net containers of the network tests: it sends and listens on request, and answers how.

It runs with `python -c` in a container: nothing but the standard library. Requests come on the control
socket's port (one JSON line, one answer), which no fault may close; the peers exchange data on the broker's
port (TCP) and on DATAGRAMS (UDP).
"""

import json
import socket
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

BROKER, CONTROL, DATAGRAMS = 9092, 9090, 9093
ANSWER_S = 5.0

BUFFER_BYTES = 8 * 2**20
SO_RCVBUFFORCE = 33

heard: Counter[str] = Counter()  # address -> datagrams
held: dict[str, socket.socket] = {}  # connections that this peer opened
taken: list[socket.socket] = []  # connections that others opened


def hear(datagrams: socket.socket) -> dict[str, int]:
    """Counts the datagrams that have arrived: the kernel keeps them until they are read."""
    while True:
        try:
            _, (address, _) = datagrams.recvfrom(2000, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return dict(heard)
        heard[address] += 1


def say(to: str, count: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
        for number in range(count):
            speaker.sendto(str(number).encode(), (to, DATAGRAMS))


def serve(connection: socket.socket) -> None:
    """Answers a line with the same line; "put N" takes N bytes first, "get N" sends N bytes."""
    with connection, connection.makefile("rb") as lines:
        try:
            for line in lines:
                word, _, number = line.decode().strip().partition(" ")
                if word == "get":
                    connection.sendall(b"x" * int(number))
                    continue
                left = int(number) if word == "put" else 0
                while left:
                    left -= len(lines.read(min(left, 1 << 16)))
                connection.sendall(line)
        except OSError:
            pass


def ask(to: str, text: str, load: int) -> dict[str, Any]:
    """Opens a connection, sends a line and so many bytes, reads the answer: milliseconds, or the error's
    name."""
    begun = time.monotonic()
    try:
        with socket.create_connection((to, BROKER), ANSWER_S) as connection:
            connected = time.monotonic()
            connection.sendall(f"{text}\n".encode() + b"x" * load)
            answer = connection.makefile("rb").readline().decode().strip()
            ended = time.monotonic()
    except OSError as error:
        return {"error": type(error).__name__, "after_ms": (time.monotonic() - begun) * 1000}
    return {"answer": answer, "answer_ms": (ended - connected) * 1000}


def ends_of(connection: socket.socket) -> str:
    """How a silent connection ended, or that it lives."""
    connection.settimeout(0.5)
    try:
        return "closed" if connection.recv(1) == b"" else "spoke"
    except TimeoutError:
        return "alive"
    except OSError as error:
        return type(error).__name__


def obey(request: dict[str, Any], datagrams: socket.socket) -> Any:
    match request.pop("do"):
        case "heard":
            return hear(datagrams)
        case "say":
            return say(**request)
        case "ask":
            return ask(**request)
        case "hold":
            held[request["to"]] = socket.create_connection((request["to"], BROKER + 2), ANSWER_S)
            return None
        case "held":
            return {"dialled": {to: ends_of(one) for to, one in held.items()},
                    "taken": [ends_of(one) for one in taken]}
        case "drop":
            for one in [*held.values(), *taken]:
                one.close()
            held.clear()
            taken.clear()
            hear(datagrams)
            heard.clear()
            return None
    raise ValueError("the request asks for nothing that is known")


def control(datagrams: socket.socket, connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            try:
                answer = {"ok": obey(json.loads(line), datagrams)}
            except Exception as error:
                answer = {"error": repr(error)}
            connection.sendall(json.dumps(answer).encode() + b"\n")


def listen(port: int, each: Any) -> None:
    listener = socket.create_server(("", port))
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=each, args=(connection,), daemon=True).start()


def main() -> None:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    datagrams.bind(("", DATAGRAMS))
    for port, each in ((BROKER, serve), (BROKER + 2, taken.append), (CONTROL, partial(control, datagrams))):
        threading.Thread(target=listen, args=(port, each)).start()


if __name__ == "__main__":
    main()
