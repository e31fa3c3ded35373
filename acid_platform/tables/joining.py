"""Joining a warehouse's metastore, and checking that warehouse and metastore belong together (P31).

Both have the same identity; the warehouse's root keeps it in `_acid_warehouse.json`. The metastore
gets an identity first, then the root, then the metastore notes that the root has it: a root without
the file is then another directory. Every command comes through here, so no file system but the
local one is loaded unless it is needed.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from acid_platform.base.local_files import sync_data, sync_path
from acid_platform.base.location import METASTORE_DIRECTORY, Location, holds_log
from acid_platform.base.paths import is_uri
from acid_platform.errors import MetastoreMissing, WarehouseMismatch, WarehouseNotWritable
from acid_platform.layout.names import is_hidden
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.tables import GetIdentity, Identify, ReportIdentityPlaced

IDENTITY = "_acid_warehouse.json"
"""The underscore hides it from readers."""


@dataclass(frozen=True, slots=True)
class IdentityFile:
    """What the root's file says: the identity, and where the metastore was when it was written.

    The place is relative to the root if it is inside.
    """

    identity: str
    metastore: str
    root: str = ""
    """The URI of the root, without its scheme; empty on a local disk, where `mv` keeps files."""

    @classmethod
    def read(cls, root: str) -> IdentityFile | None:
        """None if the root has no such file. Raises WarehouseMismatch if it can't be parsed."""
        file = f"{root}/{IDENTITY}"
        try:
            content = json.loads(_read(file))
            return cls(
                str(content["warehouse"]),
                str(content.get("metastore", "")),
                str(content.get("root", "")),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WarehouseMismatch(
                f"{file} does not tell the warehouse's identity ({error}); take it from a backup,"
                " or write it anew with `acid metastore restore` or `acid metastore rebuild`"
            ) from error

    def place(self, root: str) -> IdentityFile:
        """Writes it unless the root has one; returns the one that the root has."""
        with suppress(FileExistsError):  # one of several processes makes the file
            self._write(root, os.link)
        return IdentityFile.read(root) or self

    def replace(self, root: str) -> None:
        """Writes it, and replaces any other."""
        self._write(root, os.replace)

    def _write(self, root: str, into_place: Callable[[Path, Path], object]) -> None:
        """Raises WarehouseNotWritable, FileExistsError."""
        fields = {"warehouse": self.identity, "metastore": self.metastore}
        content = json.dumps(fields | ({"root": self.root} if self.root else {})).encode()
        if is_uri(root):
            from acid_platform.storage.files import Files

            files, path = Files.of(root)
            files.write(f"{path}/{IDENTITY}", content)
            return
        draft = Path(root, f"{IDENTITY}.{uuid.uuid4().hex}")
        try:
            draft.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("xb") as file:
                file.write(content)
                file.flush()
                sync_data(file.fileno())
            into_place(draft, Path(root, IDENTITY))
            sync_path(root)
        except FileExistsError:
            raise
        except OSError as error:
            raise WarehouseNotWritable(
                f"{root}/{IDENTITY} can't be written: {error}; choose another ACID_WAREHOUSE or its"
                " permissions"
            ) from error
        finally:
            draft.unlink(missing_ok=True)


def _read(file: str) -> bytes:
    """Raises FileNotFoundError."""
    if is_uri(file):
        from acid_platform.storage.files import Files

        files, path = Files.of(file)
        return files.read(path)
    return Path(file).read_bytes()


def new_identity_file(location: Location) -> IdentityFile:
    """An identity file with a new identity."""
    inside = f"{location.warehouse}/{METASTORE_DIRECTORY}"
    home = METASTORE_DIRECTORY if location.metastore == inside else location.metastore
    return IdentityFile(uuid.uuid4().hex, home, _uri_root(location))


def _uri_root(location: Location) -> str:
    return location.warehouse.split("://", 1)[1] if is_uri(location.warehouse) else ""


def join(location: Location, empty: bool = False) -> Metastore:
    """A client of the warehouse's metastore, which is started if it does not run.

    If there is no metastore and no table, it is made; `empty` makes it although there are tables.

    Raises MetastoreMissing, WarehouseMismatch, and what Metastore.connect raises.
    """
    identity_file = own_identity(location)
    if not location.made and not empty:
        require_new(location, identity_file)
    if not empty and rebuilding(location).exists():
        raise MetastoreMissing(
            f"a rebuild of {location.metastore} was interrupted; run `acid metastore rebuild` again"
        )
    metastore = Metastore.connect(location.metastore, root=location.warehouse)
    try:
        identify(metastore, location, identity_file, empty)
    except BaseException:
        metastore.close()
        raise
    return metastore


def rebuilding(location: Location) -> Path:
    """A file that exists during a rebuild, and after a rebuild that was interrupted."""
    return Path(location.metastore, "rebuild.unfinished")


def identify(
    metastore: Metastore,
    location: Location,
    identity_file: IdentityFile | None,
    empty: bool = False,
) -> None:
    """Checks that root and metastore have the same identity, or gives them one if both are new.

    `identity_file` must have been read before. Raises MetastoreMissing, WarehouseMismatch.
    """
    own = metastore.call(GetIdentity())
    if not own.id and identity_file is not None and not empty:
        raise MetastoreMissing(
            f"{location.warehouse} is a warehouse with the identity {identity_file.identity}, and"
            f" its metastore is not the one in {location.metastore}, which is new: {_ways()}"
        )
    if not own.id:
        own = metastore.call(Identify(new_identity_file(location).identity))
        if identity_file is not None:  # it names the metastore that this one replaces
            replace(new_identity_file(location), identity=own.id).replace(location.warehouse)
    identity = own.id
    # Another process may have written the file, but not yet the note in the metastore.
    placed_file = IdentityFile.read(location.warehouse)
    if placed_file is None and not own.placed:
        placed_file = replace(new_identity_file(location), identity=identity).place(
            location.warehouse
        )
    if placed_file is None:
        raise WarehouseMismatch(
            f"{location.warehouse} has no {IDENTITY}, and the warehouse of the metastore in"
            f" {location.metastore} has one with the identity {identity}: is a disk not mounted, or"
            " the path of another directory given? If the file alone was lost, write it again:"
            f" {json.dumps({'warehouse': identity})}"
        )
    if placed_file.identity != identity:
        raise WarehouseMismatch(
            f"{location.warehouse} is the warehouse {placed_file.identity}, and the metastore in"
            f" {location.metastore} is that of {identity}: set ACID_WAREHOUSE and ACID_METASTORE to"
            " directory and metastore of the same warehouse, or make the directory's metastore with"
            " `acid metastore restore FILE` or `acid metastore rebuild`"
        )
    if placed_file.root and placed_file.root != _uri_root(location):
        raise WarehouseMismatch(
            f"{location.warehouse} is a copy of {placed_file.root}, whose metastore is that in"
            f" {location.metastore}: name another ACID_METASTORE and restore a backup there (`acid"
            " metastore restore FILE`). If the warehouse was moved and the original is gone, write"
            f" {IDENTITY} again: {json.dumps({'warehouse': identity})}"
        )
    if not own.placed:
        metastore.call(ReportIdentityPlaced(identity))


def own_identity(location: Location) -> IdentityFile | None:
    """The file of the root. Raises WarehouseMismatch if the root has a metastore elsewhere.

    Two copies of a metastore must not serve the same root.
    """
    identity_file = IdentityFile.read(location.warehouse)
    if identity_file is None or location.shared:
        return identity_file
    if not identity_file.metastore or "://" in identity_file.metastore:
        return identity_file
    if identity_file.root and identity_file.root != _uri_root(location):
        return identity_file  # that of the original, not of this copy
    home = os.path.join(location.warehouse, identity_file.metastore)
    here = os.path.realpath(home) == os.path.realpath(location.metastore)
    if not here and holds_log(Path(home)):
        raise WarehouseMismatch(
            f"{location.warehouse} has its metastore in {home}, not in {location.metastore}; set"
            f" ACID_METASTORE to {home}, or remove that metastore if it is only an old copy"
        )
    return identity_file


def require_new(location: Location, identity_file: IdentityFile | None) -> None:
    """Raises MetastoreMissing if a new metastore would not know existing tables."""
    if identity_file is not None:
        raise MetastoreMissing(
            f"{location.warehouse} is a warehouse with the identity {identity_file.identity}, and"
            f" there is no metastore in {location.metastore}: {_ways()}"
        )
    table = next(table_directories(location.warehouse), None)
    if table is not None:
        raise MetastoreMissing(
            f"{location.warehouse} has tables, such as {table[2]}, and there is no metastore in"
            f" {location.metastore}: {_ways()}"
        )


def _ways() -> str:
    return (
        "if it is elsewhere, set ACID_METASTORE; else restore a backup (`acid metastore restore"
        " FILE`), or make a new one from the directories (`acid metastore rebuild`), or an"
        " empty one (`acid metastore start --empty`)"
    )


def table_directories(root: str) -> Iterator[tuple[str, str, str]]:
    """(database, table, location) for each directory below `db.db` that is not empty."""
    from acid_platform.storage.files import Files

    files, path = Files.of(root)
    for database in sorted(files.children(path), key=lambda info: str(info.base_name)):
        name, _, suffix = database.base_name.rpartition(".")
        if suffix != "db" or not name or is_hidden(name) or database.is_file:
            continue
        for table in sorted(files.children(database.path), key=lambda info: str(info.base_name)):
            if not table.is_file and not is_hidden(table.base_name) and files.children(table.path):
                yield name, table.base_name, f"{root}/{database.base_name}/{table.base_name}"
