"""Copies files in and out of containers, running, paused or dead, as the engine's tar archives.
An archive is read as a stream: 100 MB take half a second; as the output of a program in a helper they take
five.

Rules
1. Only plain files and folders below the target folder are unpacked, whatever else the archive contains.
2. A copy is complete or absent: it gets its name when all of it has arrived.
3. Everything here blocks; a caller with an event loop uses Lab.call.
"""

import io
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, cast

from docker.errors import NotFound

import docker

PIECE_BYTES = 64 << 10  # larger ones do not fit the processor's cache and are four times slower


def fetch(client: docker.DockerClient, container: str, source: str, target: Path, *, without: str) -> None:
    """Replaces `target` by a copy of the container's folder `source`, without names that begin with
    `without`."""
    pieces, _ = client.api.get_archive(container, source)
    fresh = target.with_name(f".{target.name}.coming")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        unpack(pieces, fresh, without=without)
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read(client: docker.DockerClient, container: str, source: str) -> str | None:
    """The text of one file of the container; None: there is no such file. OSError if it does not arrive
    complete."""
    try:
        pieces, _ = client.api.get_archive(container, source)
    except NotFound:
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            member = archive.next()
            content = None if member is None else archive.extractfile(member)
            return None if content is None else content.read().decode(errors="replace")
    except tarfile.TarError as error:
        raise OSError(f"{source} did not arrive complete: {error}") from error


def unpack(pieces: Iterable[bytes], target: Path, *, without: str) -> None:
    """Unpacks a tar of one folder, without that folder's name. OSError if it is no tar, or incomplete."""
    try:
        reader = cast(IO[bytes], _Pieces(pieces))
        with tarfile.open(fileobj=reader, mode="r|", bufsize=PIECE_BYTES) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                parts = name.parts[1:]
                if not parts or name.is_absolute() or ".." in parts or parts[0].startswith(without):
                    continue
                path = target.joinpath(*parts)
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                elif member.isfile():
                    _write(archive, member, path)
    except tarfile.TarError as error:
        raise OSError(f"the archive of it cannot be read: {error}") from error


def put(
    client: docker.DockerClient, container: str, target: str, files: Mapping[str, bytes], user: str
) -> None:
    """Copies files, by name, into the container's folder `target`; user: their owner, "uid:gid"."""
    owner, group = map(int, user.split(":"))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.uid, member.gid, member.mode = len(content), owner, group, 0o644
            archive.addfile(member, io.BytesIO(content))
    client.api.put_archive(container, target, packed.getvalue())


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(member)
    assert content is not None, "a plain file has content"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(content, file, PIECE_BYTES)


class _Pieces:
    """A file for tarfile to read, made from an iterator of bytes."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._left = b""

    def read(self, size: int) -> bytes:
        """At most `size` bytes; less only at the end."""
        parts, missing = [], size
        while missing > 0:
            piece = self._left or next(self._pieces, b"")
            if not piece:
                self._left = b""
                break
            parts.append(piece[:missing])
            self._left = piece[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)
