"""Checks that a text or JSON file of another engine is not compressed.

This platform's readers take such a file as it is. Trino compresses by default, and no name says so.
"""

from __future__ import annotations

from acid_platform.errors import CorruptFile
from acid_platform.storage.files import Files

_BEGINNINGS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
_ENDINGS = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".lzo")
_LOOKED_AT = 64 * 1024
"""Bytes."""


def require_plain_text(files: Files, path: str) -> None:
    """Raises CorruptFile for a file that is compressed, or holds a zero byte, as no text does."""
    with files.system.open_input_stream(path, compression=None) as stream:
        begin = stream.read(_LOOKED_AT)
    named = next((name for start, name in _BEGINNINGS.items() if begin.startswith(start)), None)
    if named or b"\0" in begin or path.endswith(_ENDINGS):
        raise CorruptFile(
            f"{path} is compressed{f' with {named}' if named else ''}, which readers of this table"
            " can't know: write it without, in Trino with SET SESSION <catalog>.compression_codec"
            " = 'NONE', in Hive with SET hive.exec.compress.output=false"
        )
