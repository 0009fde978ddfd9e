"""Copies files in and out of containers, running, paused or dead, as the engine's tar archives: 100 MB take
half a second; as the output of a program in a helper they take five.

Rules
1. Only plain files and folders below the target folder are unpacked, whatever else the archive contains.
2. A copy is complete or absent: it gets its name when all of it has arrived.
3. Everything here blocks; a caller with an event loop uses EngineResources.call.
"""

import io
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile

from docker.errors import NotFound

import docker


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
    with _opened(pieces) as archive:
        member = archive.next()
        content = None if member is None else archive.extractfile(member)
        return None if content is None else content.read().decode(errors="replace")


def unpack(pieces: Iterable[bytes], target: Path, *, without: str) -> None:
    """Unpacks a tar of one folder, without that folder's name. OSError if it is no tar, or incomplete."""

    def renamed(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        name = PurePosixPath(member.name)
        parts = name.parts[1:]
        if (not parts or name.is_absolute() or ".." in parts or parts[0].startswith(without)
                or not (member.isfile() or member.isdir())):
            return None
        return tarfile.data_filter(member.replace(name="/".join(parts), deep=False), path)

    with _opened(pieces) as archive:
        archive.extractall(target, filter=renamed)


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


@contextmanager
def _opened(pieces: Iterable[bytes]) -> Iterator[tarfile.TarFile]:
    try:
        with TemporaryFile() as file:
            file.writelines(pieces)
            file.seek(0)
            with tarfile.open(fileobj=file) as archive:
                yield archive
    except tarfile.TarError as error:
        raise OSError(f"the archive of it cannot be read: {error}") from error
