"""Directories of tables: put into place, and removed, so that the change survives a power failure.

A publication syncs the files, renames their directories into place, and syncs these and the parent
directories (P19, P27): at one time, since the file system then writes its journal once. Only then
may the metastore hear of them. Object stores have no renames, and make an acknowledged PUT durable:
their files are written where they will be read, and nothing is left to do for them here.

Removed is only what a commit recorded, files with the names that writers give in ACID directories,
and what is in hidden directories of transactions (P49). A directory goes if it is empty then.
Everything else was put there by somebody else, and stays: nothing here follows a symbolic link, and
an object store is told the keys to delete.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from pyarrow import fs

from acid_platform.base import local_files
from acid_platform.errors import MalformedName, PublicationFailed
from acid_platform.layout import names
from acid_platform.layout.names import BaseName, partition_segment
from acid_platform.storage.files import Files, in_threads

_ATTEMPTS = 10


def publish(
    files: Files, root: str, moves: Sequence[tuple[str, str]], all_or_none: bool = False
) -> None:
    """Rename finished directories, which no reader sees yet, to their final places below `root`.

    `moves` are pairs (staged path, final path); `root` is the location of the table. Everything is
    on disk when this returns. `all_or_none` removes what was already renamed if a later rename
    fails, since the transaction may go on. Raises PublicationFailed.
    """
    contents: list[str] = []
    directories: set[str] = set()
    for staged, final in moves:
        for where, _, inside in os.walk(staged) if files.local else ():
            contents += (f"{where}/{name}" for name in inside)
            directories.add(final + where[len(staged) :])
    sync(files, contents)
    # Existing parents too: whoever created them may not have synced them yet.
    directories |= {path for _, final in moves for path in _up_to(root, final)}
    if moves and files.local and not os.path.isdir(root):
        directories |= {*_up_to(local_files.nearest(root), root)}
    renamed: list[str] = []
    try:
        for staged, final in moves:
            _rename(files, staged, final)
            renamed.append(final)
        sync(files, directories)
    except BaseException:
        for final in renamed if all_or_none else ():
            files.delete_directory(final)
        raise


def sync_published(files: Files, root: str, directories: Sequence[str]) -> None:
    """Sync directories that another engine has put into place below `root`, the table's location,
    with their files and all directories above them (P27). Raises PublicationFailed."""
    sync(files, [path for directory in directories for path in _tree(files, directory)])
    sync(files, {path for directory in directories for path in _up_to(root, directory)})


def sync(files: Files, paths: Iterable[str]) -> None:
    """Sync local files and directories to disk. Raises PublicationFailed."""
    if not files.local:
        return
    try:
        local_files.sync_paths(paths)
    except OSError as error:
        raise PublicationFailed(
            f"{error.filename or 'a file'} can't be synced to disk: {error}; nothing was"
            " committed: check the disk, then run the statement again"
        ) from error


def replace_file(files: Files, path: str, content: bytes, draft: str | None = None) -> None:
    """Writes a file in the place of another, which readers see whole at any time. `draft`: where it
    lies before, if two processes may write it. Raises PublicationFailed."""
    if not files.local:
        files.write(path, content)
        return
    draft = draft or f"{path}.draft"
    files.write(draft, content)
    sync(files, [draft])
    files.rename(draft, path)
    sync(files, [path.rpartition("/")[0]])


def sync_removals(files: Files, removed: Iterable[str]) -> None:
    """Make removals durable, so that the metastore may forget them. Raises PublicationFailed."""
    if files.local:
        sync(files, {local_files.nearest(path.rpartition("/")[0]) for path in removed})


def make_root(files: Files, path: str) -> None:
    """Create the directory of a warehouse or table and its parents. Raises WarehouseNotWritable."""
    if files.local:
        try:
            local_files.make_directory(path)
            # Also if it existed: its creator may have been killed before syncing it.
            above = os.path.dirname(path)
            sync(
                files,
                [
                    directory
                    for directory in (above, os.path.dirname(above))
                    if os.access(directory, os.R_OK)
                ],
            )
            return
        except OSError:
            pass  # make_directory fails too, with an error that names the next step
    files.make_lasting_directory(path)


def used_twice(final: str) -> PublicationFailed:
    """The error for a directory that is there before anybody should have made it."""
    error = PublicationFailed(
        f"{final} already exists, as if a write id was used twice; move it"
        " away if no transaction owns it, then run the statement again"
    )
    error.in_the_way = final
    return error


def _tree(files: Files, directory: str) -> Iterator[str]:
    """A local directory and everything below it."""
    if not files.local:
        return
    for where, _, inside in os.walk(directory):
        yield where
        yield from (f"{where}/{name}" for name in inside)


def _up_to(root: str, path: str) -> Iterator[str]:
    """The directories above `path`, ending with `root`."""
    while path != root and len(path) > len(root):
        path = path.rpartition("/")[0] or "/"
        yield path


def _rename(files: Files, staged: str, final: str) -> None:
    """Raises PublicationFailed if `final` exists: the rename would nest the directory (F20)."""
    if files.system.get_file_info(final).type != fs.FileType.NotFound:
        raise used_twice(final)
    for attempt in range(_ATTEMPTS):
        files.system.create_dir(final.rpartition("/")[0], recursive=True)
        try:
            files.system.move(staged, final)
            return
        except FileNotFoundError:  # the Cleaner has removed the empty directory of a partition
            if attempt == _ATTEMPTS - 1 or not files.exists(staged):
                raise


Recorded = Callable[[str], frozenset[str]]
"""The files that commits recorded in a partition ('' without partitions), relative to it."""

_STAYS = (errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
"""Errors of an empty directory that can't be removed, as of one where a disk is mounted."""


class Ours:
    """Decides what the platform wrote below a location. Paths are relative to it."""

    def __init__(
        self,
        recorded: Recorded = lambda _: frozenset(),
        write_id: int | None = None,
        others: Collection[str] = (),
    ) -> None:
        """`write_id`: the highest in the names of directories that count; None: any. `others`:
        paths that belong to other tables."""
        self._ask, self._write_id, self._others = recorded, write_id, others
        self._recorded: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def file(self, path: Sequence[str]) -> bool:
        """Whether a file may be removed."""
        _, inside = _entity(path)
        if len(inside) > 1 and _hidden_by_us(inside[0]):
            return True
        if len(inside) == 2 and self._acid(inside[0]) and names.is_written(inside[1]):
            return True
        return bool(inside) and "/".join(inside) in self._recorded_in(path)[0]

    def directory(self, path: Sequence[str]) -> bool:
        """Whether there may be such files in a directory, which goes once it is empty."""
        if "/".join(path) in self._others:
            return False
        _, inside = _entity(path)
        if not inside or _hidden_by_us(inside[0]):
            return True
        if len(inside) == 1 and self._acid(inside[0]):
            return True
        return "/".join(inside) in self._recorded_in(path)[1]

    def _acid(self, name: str) -> bool:
        try:
            parsed = names.parse_directory(name)
        except MalformedName:
            return False
        if parsed is None or self._write_id is None:
            return parsed is not None
        high = parsed.write_id if isinstance(parsed, BaseName) else parsed.high
        return high <= self._write_id

    def _recorded_in(self, path: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
        """The recorded files of the path's partition, and the directories above them."""
        partition = "/".join(_entity(path)[0])
        if partition not in self._recorded:
            recorded = self._ask(partition)
            paths = [name.split("/") for name in recorded]
            above = {"/".join(parts[:end]) for parts in paths for end in range(1, len(parts))}
            self._recorded[partition] = recorded, frozenset(above)
        return self._recorded[partition]


def _hidden_by_us(name: str) -> bool:
    return name == names.STATISTICS_DIRECTORY or names.temporary_owner(name) is not None


def _entity(path: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The partition directories at the beginning of a path, and the rest."""
    depth = 0
    while depth < len(path) and not names.is_hidden(path[depth]) and partition_segment(path[depth]):
        depth += 1
    return path[:depth], path[depth:]


def remove(files: Files, location: str, path: str, ours: Ours) -> tuple[str, ...]:
    """Removes what the platform wrote at `location`/`path`: a file, or all below a directory.

    Does nothing if it is gone. Returns the paths that stay there, as somebody else put them there.
    Raises OSError, StoreRefused, StoreUnavailable for what could not be removed.
    """
    parts = tuple(path.split("/")) if path else ()
    left = _removed(files, f"{location}/{path}".rstrip("/"), parts, ours)
    return tuple(f"{location}/{name}".rstrip("/") for name in left)


def _removed(files: Files, where: str, parts: tuple[str, ...], ours: Ours) -> list[str]:
    """What is left at `where`, which counts as the path `parts` of the location."""
    if files.local:
        return _remove_local(where, parts, ours)
    return _remove_remote(files, where, parts, ours)


def not_ours(files: Files, location: str, ours: Ours | None) -> str | None:
    """The path of something at a location that `remove` would leave there, without removing
    anything; None if there is nothing. Without `ours`, of anything."""
    left = _look_local(location, ours) if files.local else _look_remote(files, location, ours)
    return next((f"{location}/{name}" for name in left), None)


def remove_at_once(files: Files, location: str, directory: str, txn_id: int) -> tuple[str, ...]:
    """Removes a directory of the aborted transaction that other engines may read, like `remove`.

    Where directories can be renamed, no listing finds only a part of it. What others have put there
    is in a hidden directory then.
    """
    if files.object_store:
        return remove(files, location, directory, Ours())
    if not files.exists(f"{location}/{directory}"):
        return ()
    hidden = f"{location}/{names.temporary_name(txn_id, uuid.uuid4().hex[:8])}"
    files.system.move(f"{location}/{directory}", hidden)
    left = _removed(files, hidden, (directory,), Ours())
    if not left:
        return ()
    aside = f"{location}/.left_{directory}_{uuid.uuid4().hex[:8]}"
    files.system.move(hidden, aside)
    return tuple(f"{aside}{name.removeprefix(directory)}" for name in left)


def remove_if_empty(files: Files, location: str, path: str) -> None:
    """Removes the directories of a path below a location, deepest first, while they are empty."""
    while path:
        where = f"{location}/{path}"
        if files.local:
            if not _rmdir(where):
                return
        elif files.children(where):
            return
        else:
            files.delete_directory(where)  # an object store may have an object for it
        path = path.rpartition("/")[0]


# --- the local file system ------------------------------------------------------------------------


def _rmdir(path: str, within: int | None = None) -> bool:
    """Whether the directory is gone."""
    try:
        os.rmdir(path, dir_fd=within)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, *_STAYS):
            return False
        raise
    return True


def _remove_local(where: str, parts: tuple[str, ...], ours: Ours) -> list[str]:
    if not os.path.lexists(where):
        return []
    here = "/".join(parts)
    if parts and (os.path.islink(where) or not os.path.isdir(where)):
        if os.path.islink(where) or not ours.file(parts):
            return [here]
        os.unlink(where)
        return []
    if not os.path.isdir(where) or (parts and not ours.directory(parts)):
        return [here]
    opened = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
    try:
        left = _clear(opened, parts, ours)
    finally:
        os.close(opened)
    return left or ([] if _rmdir(where) else [here])


def _clear(opened: int, parts: tuple[str, ...], ours: Ours) -> list[str]:
    """Empties an open directory. Below it, a path can't be led elsewhere by a symbolic link."""
    left: list[str] = []
    with os.scandir(opened) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        inside = (*parts, entry.name)
        if entry.is_dir(follow_symlinks=False) and ours.directory(inside):
            try:
                below = os.open(
                    entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened
                )
            except FileNotFoundError:
                continue
            try:
                stays = _clear(below, inside, ours)
            finally:
                os.close(below)
            if not stays and not _rmdir(entry.name, opened):
                stays = ["/".join(inside)]
            left += stays
        elif entry.is_file(follow_symlinks=False) and ours.file(inside):
            try:
                os.unlink(entry.name, dir_fd=opened)
            except FileNotFoundError:
                continue
        else:
            left.append("/".join(inside))
    return left


def _look_local(where: str, ours: Ours | None, parts: tuple[str, ...] = ()) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(where), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in entries:
        inside = (*parts, entry.name)
        if ours and entry.is_dir(follow_symlinks=False) and ours.directory(inside):
            yield from _look_local(entry.path, ours, inside)
        elif not (ours and entry.is_file(follow_symlinks=False) and ours.file(inside)):
            yield "/".join(inside)


# --- other file systems ---------------------------------------------------------------------------


def _listed(files: Files, where: str) -> list[tuple[tuple[str, ...], bool]]:
    """Everything below a path, relative to it, and whether it is a file."""
    prefix = len(where) + 1
    return [(tuple(info.path[prefix:].split("/")), info.is_file) for info in files.below(where)]


def _remove_remote(files: Files, where: str, parts: tuple[str, ...], ours: Ours) -> list[str]:
    here = "/".join(parts)
    if parts and not ours.directory(parts):
        if not ours.file(parts):
            return [here]
        files.delete_file(where)
        return []
    keys = {inside: (*parts, *inside) for inside, is_file in _listed(files, where) if is_file}
    left = {inside: path for inside, path in keys.items() if not ours.file(path)}
    if not left:
        files.delete_directory(where)  # every key in it is ours: one request for a thousand
        return []
    mine = [f"{where}/{'/'.join(inside)}" for inside in keys if inside not in left]
    in_threads(files.delete_file, mine)
    return ["/".join(path) for path in left.values()]


def _look_remote(files: Files, where: str, ours: Ours | None) -> Iterator[str]:
    if ours is None:
        yield from (info.base_name for info in files.children(where))
        return
    for inside, is_file in _listed(files, where):
        if is_file and not ours.file(inside):
            yield "/".join(inside)
