"""Making a new, empty table: where it may be, and what it must keep away from (P31, P49)."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count

from acid_platform.base.location import REMOTE
from acid_platform.base.object_store import one_spelling
from acid_platform.base.paths import absolute, is_uri, user_path
from acid_platform.errors import InvalidDefinition, NoSuchTable, TableExists, Terminal
from acid_platform.layout.names import is_hidden, original_bucket, refuse_names
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.tables import (
    DeclareTable,
    GetDropped,
    GetDroppedTables,
    GetTables,
    GetTablesNear,
    GetViews,
)
from acid_platform.metastore.places import below
from acid_platform.metastore.records import TableRecord
from acid_platform.storage.durability import Ours, make_root, not_ours
from acid_platform.storage.files import Files
from acid_platform.tables.declaration import Declaration

_ARCHIVE = "acid.metastore.archive"


def create(
    metastore: Metastore,
    name: str,
    declared: Declaration,
    location: str | None = None,
    if_not_exists: bool = False,
) -> TableRecord:
    """Registers the table and makes its directory; a missing database is made. With
    `if_not_exists`, a table that is there stays as it is.

    `location`: see `new_location`. Raises InvalidDefinition, TableExists,
    WarehouseNotWritable.
    """
    refuse_names(name, location)
    if if_not_exists or metastore.branch:
        with suppress(NoSuchTable):
            there = metastore.table(name)
            if if_not_exists:
                return there
            raise TableExists(f"branch {metastore.branch} has a table {name}; use another name")
    metastore.create_database(name.partition(".")[0], if_not_exists=True)
    where = new_location(metastore, name, location)
    declaration = declared.record(name, metastore.places.inward(where))
    files, path = Files.of(where)
    new = files.local and not os.path.lexists(path)
    make_root(files, path)  # before anybody can commit into it (P27)
    try:
        record = metastore.call(DeclareTable(declaration, if_not_exists))
    except Terminal:
        if new and where not in {record.location for record in _every(metastore)}:
            with suppress(OSError):  # somebody has put something there
                os.rmdir(path)
        raise
    make_root(*Files.of(record.location))
    return record


def new_location(metastore: Metastore, table: str, address: str | None) -> str:
    """The location of a new table: `address`, or the first of `db.db/t`, `db.db/t_2` and so on
    that no table uses, nor one that can come back.

    Raises InvalidDefinition unless it is empty, apart from what a dropped table left there for the
    Cleaner, and as `require_place`.
    """
    database, _, short = table.partition(".")
    default = f"{metastore.places.root}/{database}.db/{short}"
    for number in count(1):
        where = default if number == 1 else f"{default}_{number}"
        places = _neighbours(metastore, table, where)
        if table in places:  # the metastore refuses it, or returns the existing table
            return places[table]
        if address is not None or not (
            where in places.values() or _may_come_back(metastore, where)
        ):
            break
    if address is None:
        refuse_overlap(metastore, table, where)
    else:
        where = require_place(metastore, table, address)
    there = _somebodys(metastore, where)
    if there is None or table in (
        record.name for record in metastore.call(GetTables())
    ):  # made meanwhile
        return where
    raise InvalidDefinition(
        f"{table}: {where} holds data, such as {there}, and a new table needs an empty directory:"
        f" `adopt_table({table!r}, {where!r})` makes a table of Hive's files; or move the data"
        " away, or give another location; what CREATE TABLE … AS SELECT by another engine left"
        " there can be removed: create the table first, then INSERT"
    )


def _every(metastore: Metastore) -> list[TableRecord]:
    """All tables of now, whatever a branch shows: their places are taken."""
    return metastore.call(GetTables())


def _neighbours(metastore: Metastore, table: str, where: str) -> dict[str, str]:
    """The locations of the tables that a new one could meet at this place, and that of the table of
    its name. They are known by their names for a new directory in that of the database; any other
    may be an alias, and then these are all tables."""
    inside = metastore.places.inward(where)
    files, path = Files.of(where)
    plain = os.path.dirname(inside) == f"{table.partition('.')[0]}.db"
    if plain and files.local:
        real_root = os.path.realpath(metastore.places.root)
        plain = _identity(path) is None and os.path.realpath(path) == f"{real_root}/{inside}"
    found = metastore.call(GetTablesNear(table, inside)) if plain else _every(metastore)
    return {record.name: record.location for record in found}


def _may_come_back(metastore: Metastore, where: str) -> bool:
    """Whether the place is that of a dropped table whose history is kept (P83)."""
    if metastore.call(GetDropped(metastore.places.inward(where))) is None:
        return False
    dropped = metastore.call(GetDroppedTables())
    return any(each.until and each.table.location == where for each in dropped)


class _Leftovers(Ours):
    """What a dropped table left for the Cleaner."""

    def file(self, path: Sequence[str]) -> bool:
        return super().file(path) or original_bucket(path[-1]) is not None


def _somebodys(metastore: Metastore, where: str) -> str | None:
    """The path of something at the location, hidden or not, that no dropped table left there."""
    files, path = Files.of(where)
    if files.local and os.path.lexists(path) and not os.path.isdir(path):
        return path
    dropped = metastore.call(GetDropped(metastore.places.inward(where)))
    return not_ours(files, path, None if dropped is None else _Leftovers(write_id=dropped))


def require_place(metastore: Metastore, table: str, address: str, only_read: bool = False) -> str:
    """The path or URI of a location that somebody asks for.

    `only_read`: for an external table, beside which others may read the same files.

    Raises InvalidDefinition if it names no place that this platform can use, or one that overlaps
    the warehouse's own directories, the place of another database, or another table.
    """
    where = _spelt(table, address)
    root = metastore.places.root
    inside = path_from(root, where) if root else None
    if inside:
        _refuse_reserved(table, where, inside)
    for what, reserved in _reserved(metastore):
        if path_from(reserved, where) is not None or path_from(where, reserved) is not None:
            raise InvalidDefinition(
                f"{table}: {where} and {reserved}, {what}, enclose each other; give it a directory"
                " of its own"
            )
    refuse_overlap(metastore, table, where, only_read)
    return where


def _spelt(table: str, address: str) -> str:
    """Raises InvalidDefinition."""
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in address):
        raise InvalidDefinition(f"{table}: the location {address!r} has a control character")
    where = user_path(address)
    if not is_uri(where):
        return where
    scheme, _, rest = where.partition("://")
    host, *parts = rest.split("/")
    if scheme not in REMOTE or not host:
        raise InvalidDefinition(
            f"{table}: {address} is in no file system that is known; write a path, or s3://bucket/…"
        )
    if {"", ".", ".."} & {*parts} or not parts or set("?#") & {*rest}:
        raise InvalidDefinition(
            f"{table}: {address} is not the plain address of a directory; write"
            " s3://bucket/directory without `..`, empty parts, `?` and `#`"
        )
    return where


def _refuse_reserved(table: str, where: str, inside: str) -> None:
    """`inside`: the path from the warehouse's root."""
    first, *rest = inside.split("/")
    own = f"{table.partition('.')[0]}.db"
    if any(is_hidden(part) for part in (first, *rest)):
        raise InvalidDefinition(
            f"{table}: {where} is in a hidden directory of the warehouse, which the platform uses;"
            " give it another one"
        )
    if first.lower().endswith(".db") and (first.casefold() != own.casefold() or not rest):
        raise InvalidDefinition(
            f"{table}: {where} is the place of database {first[:-3]}, or in it; give it a directory"
            f" of its own, such as in {own}"
        )


def _reserved(metastore: Metastore) -> Iterator[tuple[str, str]]:
    log = str(metastore.status()["log"])
    if os.path.isdir(log) or "://" in log:
        yield "the directory of the metastore", log
    archive = metastore.settings().get(_ARCHIVE, "")
    if archive:
        yield f"the archive of the metastore ({_ARCHIVE})", archive


def refuse_overlap(metastore: Metastore, table: str, where: str, only_read: bool = False) -> None:
    """Raises InvalidDefinition if the directory encloses the warehouse or overlaps another table,
    whichever symbolic links or letter cases name it; of external tables only one that is written.
    """
    root = metastore.places.root
    if path_from(where, root) is not None:
        raise InvalidDefinition(
            f"{table}: {where} encloses the warehouse {root}; give it a directory of its own"
        )
    others = [
        (other, location)
        for other, location in _neighbours(metastore, table, where).items()
        # The metastore refuses a second table at one location, but knows nothing of readers.
        if other != table and (only_read or location != where)
    ]
    externals = () if only_read else metastore.call(GetViews())
    others += [
        (view.name, location)
        for view in externals
        if view.external is not None
        for location in (view.external.location, *view.external.partitions.values())
        if location
    ]
    mine = _Place(where)
    for other, location in others:
        theirs = _Place(location)
        if mine.path_from(theirs) is not None or theirs.path_from(mine) is not None:
            raise InvalidDefinition(
                f"{table}: {where} and {location}, where {other} is,"
                " enclose each other; give it a directory of its own"
            )


def confine(metastore: Metastore, table: str, where: str, roots: str, setting: str) -> None:
    """Raises InvalidDefinition unless the location is inside the warehouse or one of `roots`, the
    comma separated value of `setting`."""
    places = [metastore.places.root, *filter(None, (part.strip() for part in roots.split(",")))]
    if not any(path_from(root, where) for root in places):
        raise InvalidDefinition(
            f"{table}: the location {where} is outside of the warehouse; an administrator may allow"
            f" other directories by {setting}"
        )


def path_from(root: str, where: str) -> str | None:
    """The path from a directory to a location in it, empty if it is the same; None if it is
    outside. On this machine, directories are compared, not their names."""
    return _Place(where).path_from(_Place(root))


class _Place:
    """A location, with the directories above it that exist."""

    def __init__(self, location: str) -> None:
        where = absolute(location)
        self.remote = is_uri(where)
        self.text = one_spelling(where) if self.remote else os.path.realpath(where)
        self._above: list[tuple[tuple[int, int] | None, str]] | None = None

    @property
    def identity(self) -> tuple[int, int] | None:
        return None if self.remote else _identity(self.text)

    def path_from(self, root: _Place) -> str | None:
        if self.text == root.text:
            return ""
        if self.remote or root.remote:
            return below(self.text, root.text) if self.remote and root.remote else None
        inside = below(self.text, root.text.rstrip("/"))
        target = root.identity if inside is None else None
        if target is None:
            return inside
        return next((rest for identity, rest in self._chain() if identity == target), None)

    def _chain(self) -> list[tuple[tuple[int, int] | None, str]]:
        """It and each directory above it, with the path from there."""
        if self._above is None:
            self._above, rest, path = [], "", self.text
            while True:
                self._above.append((_identity(path), rest))
                above, name = os.path.split(path)
                if above == path:
                    break
                rest, path = f"{name}/{rest}".rstrip("/"), above
        return self._above


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
