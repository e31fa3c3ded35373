"""The types that an ORC file of somebody else says, beside those that a table declares (P64)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acid_platform.formats.data_file import FilePath
from acid_platform.formats.file_access import open_file, reading
from acid_platform.layout.schema import is_positional
from acid_platform.layout.types import Column, HiveType
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import has_leaf, is_decimal
from acid_platform.values.stored_values import as_declared


def matching_parts(stored: HiveType, declared: HiveType) -> Iterator[tuple[HiveType, HiveType]]:
    """Both types, and the types inside of them that describe the same values."""
    yield stored, declared
    if stored.kind != declared.kind:
        return
    if stored.kind == "struct":
        own = dict(stored.children)
        pairs = [(own[name], kind) for name, kind in declared.children if name in own]
    else:
        children = zip(stored.children, declared.children, strict=False)
        pairs = [(one, other) for (_, one), (_, other) in children]
    for one, other in pairs:
        yield from matching_parts(one, other)


def require_exact_decimals(files: Files, path: str, columns: Sequence[Column]) -> bool:
    """Whether the file has decimals without a scale, as Hive 0.11 wrote them.

    ORC's library for Java, and so Spark, rounds such values. All of them are read here: raises
    UnsupportedLayout for one that decimal(38,10), or the type of its column, does not hold.
    """
    with reading(path):
        file = open_file(files, FilePath(path))
        if not file.has_old_decimals:
            return False
        names = [name for name in file.names if has_leaf(file.type_of(name), is_decimal)]
        placed = {}
        if is_positional(file.names):
            placed = dict(zip(file.names, columns, strict=False))
        declared = {column.name: column for column in columns}
        for piece in range(len(file.piece_rows)):
            arrays = file.decode(piece, names)
            for name in names:
                column = placed.get(name) or declared.get(name.lower())
                if column is not None:
                    as_declared(arrays[name], column.type, f"{path}, column {column.name}")
    return True
