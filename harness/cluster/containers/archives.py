"""Copies files in and out of containers, running, paused or dead, by the engine's archives.

An archive is read as it comes: 100 MB take half a second; through the output of a program in a helper they
take five.

Rules
1. What is unpacked is plain files and folders below the folder wanted, whatever the archive says.
2. A copy is complete or not there: it gets its name when all of it has come.
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

PIECE_BYTES = 64 << 10  # larger ones fall out of the processor's cache on their way: four times slower


def fetch(client: docker.DockerClient, container: str, source: str, target: Path, *, without: str) -> None:
    """Make `target` a copy of the folder `source` of the container; what was there before is gone. Names that
    begin with `without` are left out."""
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
    """The text of one file of the container; None: there is no such file."""
    try:
        pieces, _ = client.api.get_archive(container, source)
    except NotFound:
        return None
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        member = archive.next()
        content = None if member is None else archive.extractfile(member)
        return None if content is None else content.read().decode(errors="replace")


def unpack(pieces: Iterable[bytes], target: Path, *, without: str) -> None:
    """A tar of one folder, without that folder's name. OSError when it is not one, or not whole."""
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
    """Files, by name, into the folder `target` of the container; user: "uid:gid", whose they are then."""
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
    """An iterator of bytes as the file that tarfile reads from."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._left = b""

    def read(self, size: int) -> bytes:
        """At most so much; less only at the end."""
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
