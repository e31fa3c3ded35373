"""Publishing and removing directories so that the change survives a power failure (P19, P27).

A publication syncs the files, renames their directories into place, and syncs these and the parent
directories: at one time, since the file system then writes its journal once. Only then may the
metastore hear of them. Object stores have no
renames, and make an acknowledged PUT durable: their files are written where they will be read, and
nothing is left to do for them here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from pyarrow import fs

from acid_platform.base import disk
from acid_platform.errors import PublicationFailed
from acid_platform.storage.files import Files

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
        for where, _, names in os.walk(staged) if files.local else ():
            contents += (f"{where}/{name}" for name in names)
            directories.add(final + where[len(staged) :])
    sync(files, contents)
    # Existing parents too: whoever created them may not have synced them yet.
    directories |= {path for _, final in moves for path in _up_to(root, final)}
    if moves and files.local and not os.path.isdir(root):
        directories |= {*_up_to(disk.nearest(root), root)}
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
        disk.sync_paths(paths)
    except OSError as error:
        raise PublicationFailed(
            f"{error.filename or 'a file'} can't be synced to disk: {error}; nothing was"
            " committed: check the disk, then run the statement again"
        ) from error


def sync_removals(files: Files, removed: Iterable[str]) -> None:
    """Make removals durable, so that the metastore may forget them. Raises PublicationFailed."""
    if files.local:
        sync(files, {disk.nearest(path.rpartition("/")[0]) for path in removed})


def make_root(files: Files, path: str) -> None:
    """Create the directory of a warehouse or table and its parents. Raises WarehouseNotWritable."""
    if files.local:
        try:
            disk.make_directory(path)
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
