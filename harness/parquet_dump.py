"""A dump kept a second time as Parquet, beside its JSON lines: a tenth of the bytes, and quicker to read.

Rules
1. A twin says which bytes it was made of (their number and CRC). Beside lines that are others by now it
   stands for nothing: the lines are the dump.
2. A twin is there whole or not at all; a run is none the worse for lacking it.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run_location import replacing

OF = b"floodmark.of"  # in the file's metadata: "SIZE CRC" of the lines
_BLOCK_BYTES = 1 << 22
_COLUMNS = (
    ("node", "string"), ("partition", "int64"), ("offset", "int64"), ("epoch", "int64"), ("value", "int64"),
    ("crc", "int64"), ("crc_ok", "bool"), ("aborted", "bool"),
)  # fmt: skip


def write_twin(lines: Path) -> Path:
    """NODE.parquet beside NODE.jsonl, a file of whole and good lines.

    Raises: FloodmarkError where it cannot be read as a dump, or not be written.
    """
    import pyarrow as pa  # only who writes a dump pays for it
    import pyarrow.json
    import pyarrow.parquet

    twin = lines.with_suffix(".parquet")
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in _COLUMNS])
    told = schema.with_metadata({OF: said_of(lines)})
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(block_size=_BLOCK_BYTES)
    try:
        with (
            replacing(twin) as fresh,
            pyarrow.parquet.ParquetWriter(fresh, told, compression="zstd") as writer,
        ):
            if lines.stat().st_size:
                for batch in pyarrow.json.open_json(lines, read_options=read, parse_options=parse):
                    writer.write_batch(batch.cast(told))
    except (OSError, pa.ArrowException) as error:
        raise FloodmarkError(f"{twin} could not be made of {lines}: {error}") from error
    return twin


def is_twin(twin: Path, lines: Path, *, key: bytes = OF, reading: bytes = b"") -> bool:
    """Whether the Parquet file was made of these very lines: its metadata say so under `key`, behind
    `reading` (in which way they were read, where there may be several)."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        metadata = pyarrow.parquet.read_metadata(twin).metadata or {}
        return key in metadata and metadata[key] == reading + said_of(lines)
    except (OSError, pa.ArrowException):
        return False


def said_of(lines: Path) -> bytes:
    """How a twin names the lines it was made of."""
    crc = 0
    for block in _blocks(lines):
        crc = zlib.crc32(block, crc)
    return b"%d %08x" % (lines.stat().st_size, crc)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block
