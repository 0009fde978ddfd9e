"""Writes a dump a second time as Parquet, beside its JSON lines: a tenth of the bytes, and faster to read.

Rules
1. The Parquet copy records which lines it was made from (their size and CRC). If the lines have changed
   since, the copy is ignored: the lines are the dump.
2. A copy is either complete or absent. Runs work without it.
"""

import zlib
from pathlib import Path

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run_location import replacing

FINGERPRINT_KEY = b"floodmark.of"  # key in the file's metadata; value: "SIZE CRC" of the lines
_BLOCK_BYTES = 1 << 22
_COLUMNS = (
    ("node", "string"), ("partition", "int64"), ("offset", "int64"), ("epoch", "int64"), ("value", "int64"),
    ("crc", "int64"), ("crc_ok", "bool"), ("aborted", "bool"),
)  # fmt: skip


def write_parquet(lines: Path) -> Path:
    """Write NODE.parquet beside NODE.jsonl, whose lines must all be complete and valid; FloodmarkError."""
    import pyarrow as pa  # slow to import, so only those who write a dump wait for it
    import pyarrow.json
    import pyarrow.parquet

    copy = lines.with_suffix(".parquet")
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in _COLUMNS])
    schema_with_source = schema.with_metadata({FINGERPRINT_KEY: fingerprint_of(lines)})
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(block_size=_BLOCK_BYTES)
    try:
        with (
            replacing(copy) as new_file,
            pyarrow.parquet.ParquetWriter(new_file, schema_with_source, compression="zstd") as writer,
        ):
            if lines.stat().st_size:
                for batch in pyarrow.json.open_json(lines, read_options=read, parse_options=parse):
                    writer.write_batch(batch.cast(schema_with_source))
    except (OSError, pa.ArrowException) as error:
        raise FloodmarkError(f"cannot write {copy} from {lines}: {error}") from error
    return copy


def is_copy(copy: Path, lines: Path, *, key: bytes = FINGERPRINT_KEY, reading: bytes = b"") -> bool:
    """Whether the Parquet file was made from exactly these lines, by its metadata under `key`. `reading`:
    what the metadata have before the fingerprint, where there are several ways to read the lines."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        metadata = pyarrow.parquet.read_metadata(copy).metadata or {}
        return key in metadata and metadata[key] == reading + fingerprint_of(lines)
    except (OSError, pa.ArrowException):
        return False


def fingerprint_of(lines: Path) -> bytes:
    """The size and CRC of the lines, as a copy's metadata have them."""
    crc = 0
    with lines.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return b"%d %08x" % (lines.stat().st_size, crc)
