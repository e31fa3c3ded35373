"""Directories become part of a table, or leave it, and that outlives a power cut (P19, P27).

The order of a publication: the files are synced, then the directories that hold them, then these
are renamed into place, then the directories above are synced that got new names. Only after that
may the metastore be told of them. On stores that are not local file systems an acknowledged PUT is
durable, and nothing is left to do here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from pyarrow import fs

from acid_platform import disk
from acid_platform.errors import PublicationFailed
from acid_platform.storage.files import Files


def publish(
    files: Files, root: str, moves: Sequence[tuple[str, str]], all_or_none: bool = False
) -> None:
    """Rename finished directories from where no reader sees them to their places below `root`.

    `moves` are pairs of paths, `root` the location of the table. When this returns all of it is on
    the disk. `all_or_none`: what was renamed before a failure is removed again, as its transaction
    may go on. Raises PublicationFailed.
    """
    sync(files, [path for staged, _ in moves for path in _tree(files, staged)])
    # Also those that are there: who made them may not have synced them yet.
    above = {path for _, final in moves for path in _up_to(root, final)}
    if moves and files.local and not os.path.isdir(root):
        above |= {*_up_to(disk.nearest(root), root)}
    done: list[str] = []
    try:
        for staged, final in moves:
            _rename(files, staged, final)
            done.append(final)
        sync(files, above)
    except BaseException:
        for final in done if all_or_none else ():
            files.delete_directory(final)
        raise


def sync(files: Files, paths: Iterable[str]) -> None:
    """Files and directories of a local file system, to the disk. Raises PublicationFailed."""
    if not files.local:
        return
    try:
        disk.sync_paths(paths)
    except OSError as error:
        raise PublicationFailed(
            f"{error.filename or 'a file'} can't be brought to the disk: {error}; nothing was"
            " committed: look after the disk, and run the statement again"
        ) from error


def sync_removals(files: Files, removed: Iterable[str]) -> None:
    """What was removed stays removed: so the metastore may forget it. Raises PublicationFailed."""
    if files.local:
        sync(files, {disk.nearest(path.rpartition("/")[0]) for path in removed})


def make_root(files: Files, path: str) -> None:
    """The directory of a warehouse or table, with those above it. Raises WarehouseNotWritable."""
    if files.local:
        try:
            disk.make_directory(path)
            # Also when it was there: who made it may have been killed before it was synced.
            above = os.path.dirname(path)
            sync(files, [one for one in (above, os.path.dirname(above)) if os.access(one, os.R_OK)])
            return
        except OSError:
            pass  # what follows fails as well, with its own words
    files.make_directory(path)


def _tree(files: Files, directory: str) -> Iterator[str]:
    """All that a local directory holds, and itself."""
    if not files.local:
        return
    for where, _, names in os.walk(directory):
        yield where
        yield from (f"{where}/{name}" for name in names)


def _up_to(root: str, path: str) -> Iterator[str]:
    """The directories above `path`, `root` the last of them."""
    while path != root and len(path) > len(root):
        path = path.rpartition("/")[0] or "/"
        yield path


def _rename(files: Files, staged: str, final: str) -> None:
    """Renaming onto an existing directory would nest it (F20): an error."""
    if files.system.get_file_info(final).type != fs.FileType.NotFound:
        raise PublicationFailed(
            f"{final} exists already, as if a write id was used twice; move"
            " it away if no transaction owns it, and run it again"
        )
    files.system.create_dir(final.rpartition("/")[0], recursive=True)
    files.system.move(staged, final)
