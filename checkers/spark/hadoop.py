"""Run folders on Hadoop's file systems: hdfs://, s3a://, viewfs:// and whatever else Spark has.

Rules
1. A HadoopPlace has the methods of Path that harness.run_location uses; every name has its scheme.
2. Only small files and the ends of big ones are read here, through the JVM; Spark reads the big ones.
3. An unknown scheme is a usage error; one whose classes are missing names the jar that has them.
"""

import errno
import io
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from floodmark.checkers.spark import jvm, session
from floodmark.checkers.spark.spark_master import words_of
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.spark_options import HERE, Workers

BUFFER_BYTES = 1 << 18  # of one call into the JVM
_MAGIC = frozenset("*?[{")
_JARS = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
}  # of Hadoop's own version


def far_folders(word: str, workers: Workers = HERE) -> "list[HadoopPlace]":
    """The folder at this address, or those that it matches as a pattern; UsageError if there is none."""
    session.context(workers)
    place = HadoopPlace(uri=word)
    refuse_unreachable(place)
    if place.exists():
        return [place.resolve()]
    if not _MAGIC & set(word):
        raise UsageError(f"{word} does not exist")
    try:
        found = place.glob_folders()
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise UsageError(f"{word} does not exist, and is no pattern: {error.strerror}") from error
        raise
    if not found:
        raise UsageError(f"{word!r} matches no folder")
    return found


def refuse_unreachable(place: "HadoopPlace") -> None:
    """UsageError or FloodmarkError if no file system serves this address."""
    scheme = place.uri.partition(":")[0]
    try:
        place.file_system()
    except (PySparkException, Py4JError) as error:
        words = words_of(error)
        if "No FileSystem for scheme" in words:
            raise UsageError(f"{place.uri}: Spark knows no file system {scheme}://") from error
        if _names(error) & {"ClassNotFoundException", "NoClassDefFoundError"}:
            version = jvm.hadoop().util.VersionInfo.getVersion()
            which = f".packages={_JARS[scheme]}:{version}" if scheme in _JARS else "=FILE"
            raise FloodmarkError(
                f"{place.uri}: Spark lacks the jar for {scheme}:// ({words}); give it: "
                f"--conf spark.jars{which}"
            ) from error
        raise FloodmarkError(f"{place.uri}: {words}") from error


def uri_of(address: str) -> str:
    """The address in the form in which Spark reports a row's file."""
    return str(jvm.hadoop().fs.Path(address).toUri().toString())


def literally(address: str) -> str:
    """The address with characters escaped that Spark would take for a pattern."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    st_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HadoopPlace:
    """A file or folder by its address."""

    uri: str

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str, /) -> "HadoopPlace":
        return self._at(f"{self.uri.rstrip('/')}/{name}")

    def _at(self, uri: str) -> "HadoopPlace":
        return HadoopPlace(uri=uri)

    @property
    def name(self) -> str:
        return self.uri.rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        stem, dot, end = self.name.rpartition(".")
        return dot + end if stem and end else ""

    def path(self) -> Any:
        return jvm.hadoop().fs.Path(self.uri)

    def file_system(self) -> Any:
        return self.path().getFileSystem(jvm.hadoop_configuration())

    def resolve(self) -> "HadoopPlace":
        """The full address: with the host that fs.defaultFS names, and normalized."""
        with self._as_of_a_path():
            return self._at(str(self.file_system().makeQualified(self.path()).toString()))

    def exists(self) -> bool:
        return self._status() is not None

    def is_file(self) -> bool:
        status = self._status()
        return status is not None and bool(status.isFile())

    def is_dir(self) -> bool:
        status = self._status()
        return status is not None and bool(status.isDirectory())

    def stat(self) -> Status:
        with self._as_of_a_path():
            return Status(st_size=int(self.file_system().getFileStatus(self.path()).getLen()))

    def _status(self) -> Any:
        try:
            with self._as_of_a_path():
                return self.file_system().getFileStatus(self.path())
        except FileNotFoundError:
            return None

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        assert mode == "rb"
        with self._as_of_a_path():
            status = self.file_system().getFileStatus(self.path())
            if status.isDirectory():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.uri)
            stream = self.file_system().open(self.path())
        return cast(BinaryIO, io.BufferedReader(_Stream(self, stream, int(status.getLen())), BUFFER_BYTES))

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return file.read()

    def glob_folders(self) -> "list[HadoopPlace]":
        with self._as_of_a_path():
            found = self.file_system().globStatus(self.path())
            folders = [status for status in found or () if status.isDirectory()]
            return sorted((self._at(str(status.getPath().toString())) for status in folders), key=str)

    def write_whole(self, data: bytes) -> None:
        """Write atomically, by rename, if the file system has a replacing one; otherwise as the file system
        writes a file."""
        folder, _, name = self.uri.rpartition("/")
        with self._as_of_a_path():
            # Write where a mount table points to.
            home = self._at(str(self.file_system().resolvePath(jvm.hadoop().fs.Path(folder)).toString()))
            system, context = home.file_system(), home._context()
            last, fresh = home / name, home / f".{name}.{secrets.token_hex(8)}"
            system.setWriteChecksum(False)  # a .crc file would remain after the file itself
            try:
                stream = system.create((last if context is None else fresh).path(), context is None)
                try:
                    stream.write(data)
                finally:
                    stream.close()
                if context is not None:
                    rename = jvm.hadoop().fs.Options.Rename
                    context.rename(fresh.path(), last.path(), jvm.array_of(rename, rename.OVERWRITE))
            finally:
                if context is not None:
                    system.delete(fresh.path(), False)

    def _context(self) -> Any:
        """Hadoop's newer interface, whose rename replaces; None for a file system without it."""
        try:
            return jvm.hadoop().fs.FileContext.getFileContext(self.path().toUri(), jvm.hadoop_configuration())
        except (PySparkException, Py4JError):
            return None

    @contextmanager
    def _as_of_a_path(self) -> Iterator[None]:
        """Turn errors in the JVM into the OSErrors that a Path would raise."""
        try:
            yield
        except (PySparkException, Py4JError) as error:
            raise _os_error(error, self.uri) from error


class _Stream(io.RawIOBase):
    """A file in the JVM, as a raw Python file."""

    def __init__(self, place: HadoopPlace, stream: Any, size: int) -> None:
        self._place, self._stream, self._size = place, stream, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if self._at < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._place.uri)
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        wanted = min(len(buffer), max(0, self._size - self._at))
        if not wanted:
            return 0
        with self._place._as_of_a_path():
            self._stream.seek(self._at)
            data = bytes(self._stream.readNBytes(wanted))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with self._place._as_of_a_path():
                self._stream.close()


def _os_error(error: Exception, uri: str) -> OSError:
    names, words = _names(error), words_of(error)
    if names & {"AccessControlException", "AccessDeniedException"} or "(Permission denied)" in words:
        return PermissionError(errno.EACCES, os.strerror(errno.EACCES), uri)
    if names & {"FileNotFoundException", "NoSuchFileException"}:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), uri)
    return OSError(errno.EINVAL if "PatternSyntaxException" in names else errno.EIO, words, uri)


def _names(error: Exception) -> set[str]:
    """The classes of the error and of its causes."""
    java, names = getattr(error, "java_exception", None), set[str]()
    while java is not None and len(names) < 20:
        names.add(str(java.getClass().getSimpleName()))
        java = java.getCause()
    return names
