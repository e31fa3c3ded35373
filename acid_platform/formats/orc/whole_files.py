"""ORC files as a whole: checks before one is opened, errors of damaged ones, and other footers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from acid_platform.base.file_bounds import LARGEST_FOOTER
from acid_platform.base.object_store import store_fault
from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.formats.orc.protobuf import UnreadableMessage
from acid_platform.formats.orc.tail import Postscript, require_bounds, require_shallow
from acid_platform.storage.files import Files


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Arrow's errors inside the block become CorruptFile with the file and the next step, or
    StoreRefused and StoreUnavailable if the store is to blame."""
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptFile(
            f"{path} was listed but is gone; read again if the Cleaner removed it, else restore it"
        ) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, UnreadableMessage) as error:
        if fault := store_fault(error, path):
            raise fault from error
        if isinstance(error, pa.ArrowNotImplementedError):
            raise UnsupportedLayout(f"{path} holds what is not read: {error}") from error
        raise CorruptFile(
            f"{path} can't be read: {error}; restore it or drop its transaction"
        ) from error


def require_shallow_types(files: Files, path: str, length: int | None = None) -> None:
    """Raises CorruptFile for an ORC file whose types would crash Arrow and pyorc, before they see
    them; also for a footer that can't be opened. Raises UnsupportedLayout for a file of values that
    are no rows, StoreRefused, StoreUnavailable."""
    with reading(path), files.open(path) as stream:
        size = stream.size() if length is None else length
        postscript, tail = Postscript.read(stream, size, path)
        whole = postscript.footer_length + postscript.size
        if whole > min(size, LARGEST_FOOTER):
            raise CorruptFile(f"{path} has an ORC footer of {whole:,} bytes")
        if whole > len(tail):
            stream.seek(size - whole)
            tail = bytes(stream.read(whole))
    footer = tail[len(tail) - whole : len(tail) - postscript.size]
    opened = postscript.opened(footer, path)
    require_shallow(opened, path)
    require_bounds(opened, size, path)


def require_found_by_name(fields: Iterable[pa.Field], path: str) -> None:
    """Raises UnsupportedLayout for a column `a.b` before a struct `a` with a field `b`: Arrow finds
    columns by such paths, and would read the field."""
    seen: set[str] = set()
    for field in fields:
        for name in sorted(seen.intersection(_paths_below(field))):
            raise UnsupportedLayout(
                f"{path}, column `{name}` is named as a field of the struct `{field.name}`, which"
                " comes after it: ORC's readers can't tell them apart; rename one of them"
            )
        if "." in field.name:
            seen.add(field.name)


def _paths_below(field: pa.Field) -> Iterator[str]:
    for inner in field.type if pa.types.is_struct(field.type) else ():
        path = inner.with_name(f"{field.name}.{inner.name}")
        yield path.name
        yield from _paths_below(path)


def replace_footer(files: Files, path: str, footer: bytes) -> None:
    """Give another footer to a finished ORC file that nobody reads yet. Raises CorruptFile."""
    size = files.system.get_file_info(path).size
    with files.system.open_input_file(path) as stream:
        old, _ = Postscript.read(stream, size, path)
    start, chunks = size - old.footer_length - old.size, old.chunks(footer)
    tail = chunks + old.renewed(len(chunks))
    if files.local:
        with open(path, "r+b") as handle:
            handle.truncate(start)
            handle.seek(0, 2)
            handle.write(tail)
    else:  # only a local file can be truncated: rewrite it
        files.write(path, files.read(path)[:start] + tail)
