"""Joining the metastore of a warehouse, and finding out that the two belong together (P31).

The root of a warehouse carries its identity in `_acid_warehouse.json`, the metastore has it too.
The metastore gets one first, then the root, then the metastore notes that the root has it: a root
that lacks the file later on is not the one that it was. Loads no file system but the local one
unless it has to: every command passes here.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from acid_platform.errors import MetastoreMissing, WarehouseMismatch, WarehouseNotWritable
from acid_platform.layout.names import is_hidden
from acid_platform.location import METASTORE_DIRECTORY, Location
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.places import is_uri

IDENTITY = "_acid_warehouse.json"
"""Hidden from readers by its underscore."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the root's file says: the identity, and where the metastore was when it was written;
    inside the root relative to it."""

    identity: str
    metastore: str

    @classmethod
    def read(cls, root: str) -> Mark | None:
        """None if the root has none. Raises WarehouseMismatch if it can't be understood."""
        file = f"{root}/{IDENTITY}"
        try:
            said = json.loads(_read(file))
            return cls(str(said["warehouse"]), str(said.get("metastore", "")))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise WarehouseMismatch(
                f"{file} does not tell the warehouse's identity ({error}); take it from a backup,"
                " or write it anew with `acid metastore restore` or `acid metastore rebuild`"
            ) from error

    def place(self, root: str) -> Mark:
        """Gives it to a root that has none; answers which the root has."""
        with suppress(FileExistsError):  # of several processes one makes the name
            self._write(root, os.link)
        return Mark.read(root) or self

    def replace(self, root: str) -> None:
        """Takes the place of any other."""
        self._write(root, os.replace)

    def _write(self, root: str, into_place: Callable[[Path, Path], object]) -> None:
        """Raises WarehouseNotWritable, FileExistsError."""
        said = json.dumps({"warehouse": self.identity, "metastore": self.metastore}).encode()
        if is_uri(root):
            from acid_platform.storage.files import Files

            files, path = Files.of(root)
            files.write(f"{path}/{IDENTITY}", said)
            return
        draft = Path(root, f"{IDENTITY}.{uuid.uuid4().hex}")
        try:
            draft.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("xb") as file:
                file.write(said)
                file.flush()
                os.fsync(file.fileno())
            into_place(draft, Path(root, IDENTITY))
            _sync(root)
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


def _sync(directory: str) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def new_mark(place: Location) -> Mark:
    """Of a new identity."""
    inside = f"{place.warehouse}/{METASTORE_DIRECTORY}"
    return Mark(
        uuid.uuid4().hex, METASTORE_DIRECTORY if place.metastore == inside else _home(place)
    )


def _home(place: Location) -> str:
    return place.metastore if place.shared else os.path.abspath(place.metastore)


def join(place: Location, empty: bool = False) -> Metastore:
    """A client of the warehouse's metastore, which is started if need be, and made if there is none
    and no table either; `empty`: although there are tables.

    Raises MetastoreMissing, WarehouseMismatch, and what Metastore.connect raises.
    """
    mark = Mark.read(place.warehouse)
    if mark is not None:
        refuse_other_home(place, mark)
    if not place.made and not empty:
        require_new(place, mark)
    if not empty and rebuilding(place).exists():
        raise MetastoreMissing(
            f"a rebuild of {place.metastore} was interrupted; run `acid metastore rebuild` again"
        )
    metastore = Metastore.connect(place.metastore, root=place.warehouse)
    try:
        identify(metastore, place, mark, empty)
    except BaseException:
        metastore.close()
        raise
    return metastore


def rebuilding(place: Location) -> Path:
    """A file that is there while a rebuild goes on, and after one that was interrupted."""
    return Path(place.metastore, "rebuild.unfinished")


def identify(metastore: Metastore, place: Location, mark: Mark | None, empty: bool = False) -> None:
    """Checks that root and metastore have one identity, and gives them one if both are new.

    `mark` was read before the metastore is asked. Raises MetastoreMissing, WarehouseMismatch.
    """
    known, placed = metastore.identity()
    if known is None and mark is not None and not empty:
        raise MetastoreMissing(
            f"{place.warehouse} is a warehouse with the identity {mark.identity}, and its metastore"
            f" is not the one in {place.metastore}, which is new or of an older version:"
            f" {_ways()}"
        )
    if known is None:
        known, placed = metastore.identify(new_mark(place).identity)
        if mark is not None:  # of the metastore that this one replaces
            Mark(known, new_mark(place).metastore).replace(place.warehouse)
    # Of a process that was faster the file comes before the note in the metastore.
    found = Mark.read(place.warehouse)
    if found is None and not placed:
        found = Mark(known, new_mark(place).metastore).place(place.warehouse)
    if found is None:
        raise WarehouseMismatch(
            f"{place.warehouse} has no {IDENTITY}, and the warehouse of the metastore in"
            f" {place.metastore} has one with the identity {known}: is a disk not mounted, or the"
            " path of another directory given? If the file alone was lost, write it again:"
            f" {json.dumps({'warehouse': known})}"
        )
    if found.identity != known:
        raise WarehouseMismatch(
            f"{place.warehouse} is the warehouse {found.identity}, and the metastore in"
            f" {place.metastore} is that of {known}: name directory and metastore of one warehouse"
            " by ACID_WAREHOUSE and ACID_METASTORE, or make the directory's metastore with `acid"
            " metastore restore FILE` or `acid metastore rebuild`"
        )
    if not placed:
        metastore.identity_placed(known)


def refuse_other_home(place: Location, mark: Mark) -> None:
    """Two copies of one metastore must not serve one root. Raises WarehouseMismatch."""
    if place.shared or not mark.metastore or mark.metastore.startswith("tcp://"):
        return
    home = os.path.join(place.warehouse, mark.metastore)
    if os.path.realpath(home) == os.path.realpath(place.metastore):
        return
    if Path(home, "metastore.duckdb").exists():
        raise WarehouseMismatch(
            f"{place.warehouse} has its metastore in {home}, not in {place.metastore}; set"
            f" ACID_METASTORE to the former, or remove that one, if it is only an old copy"
        )


def require_new(place: Location, mark: Mark | None) -> None:
    """Whether a new metastore would forget tables. Raises MetastoreMissing."""
    if mark is not None:
        raise MetastoreMissing(
            f"{place.warehouse} is a warehouse with the identity {mark.identity}, and there is no"
            f" metastore in {place.metastore}: {_ways()}"
        )
    table = next(table_directories(place.warehouse), None)
    if table is not None:
        raise MetastoreMissing(
            f"{place.warehouse} has tables, such as {table[2]}, and there is no metastore in"
            f" {place.metastore}: {_ways()}"
        )


def _ways() -> str:
    return (
        "if it is elsewhere, set ACID_METASTORE; else restore a backup (`acid metastore restore"
        " FILE`), or make a new one out of the directories (`acid metastore rebuild`), or an"
        " empty one (`acid metastore start --empty`)"
    )


def table_directories(root: str) -> Iterator[tuple[str, str, str]]:
    """(database, table, location) of each directory below `db.db` that is not empty."""
    from acid_platform.storage.files import Files

    files, path = Files.of(root)
    for database in sorted(files.children(path), key=lambda one: str(one.base_name)):
        name, _, suffix = database.base_name.rpartition(".")
        if suffix != "db" or not name or is_hidden(name) or database.is_file:
            continue
        for table in sorted(files.children(database.path), key=lambda one: str(one.base_name)):
            if not table.is_file and not is_hidden(table.base_name) and files.children(table.path):
                yield name, table.base_name, f"{root}/{database.base_name}/{table.base_name}"
