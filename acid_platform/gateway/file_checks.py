"""Checks of a file that another engine wrote, before its transaction commits."""

from __future__ import annotations

from acid_platform.errors import CorruptFile
from acid_platform.orc import open_strange_orc, reading
from acid_platform.storage.files import Files

_ORIGINAL, _CURRENT = 1, 4
"""Places of the two columns with write ids among the six ACID columns."""
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


def require_own_rows(files: Files, path: str, write_id: int, deletes: bool) -> None:
    """Raises CorruptFile if the file lacks the six ACID columns, or names another write id (P34).

    Snapshots choose files by the write id in a directory's name, so a row with another write id
    would be seen by too many of them or by too few. A delete event names the write id of the row
    that it deletes, and its own as the current one.
    """
    with reading(path):
        file = open_strange_orc(files, path)
        names = file.acid_columns()
        if not file.nrows:
            return
        for place in (_CURRENT,) if deletes else (_ORIGINAL, _CURRENT):
            low, high = file.bounds(names[place])
            if (low, high) != (write_id, write_id):
                raise CorruptFile(
                    f"{path} has rows whose {names[place]} is {low} to {high}, and its transaction"
                    f" has the write id {write_id}; run the statement again"
                )
