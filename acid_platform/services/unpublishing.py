"""Removes the output of aborted compactions, so that other engines may read again (P46)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.layout.names import temporary_owner
from acid_platform.metastore.operations.compaction import EndPublication, GetUnpublished
from acid_platform.metastore.tasks import Unpublication
from acid_platform.storage.durability import sync_removals
from acid_platform.storage.files import Files
from acid_platform.storage.removal import Ours, remove_at_once
from acid_platform.storage.removal import remove as remove_all

if TYPE_CHECKING:
    from acid_platform.metastore.client.metastore import Metastore

WHY = "its compaction was aborted"


def remove(metastore: Metastore, task: Unpublication) -> list[str]:
    """Removes the directories of a task of `unpublished`, and ends the publication.

    The Worker may be alive: it can rename nothing more once its hidden directory is gone. Returns
    the paths that were there. Raises OSError, StoreRefused, StoreUnavailable, PublicationFailed;
    then the publication goes on.
    """
    files, location = Files.of(task.location)
    for name in files.temporaries(location):
        if temporary_owner(name) == task.txn_id:
            remove_all(files, location, name, Ours())
    paths = [f"{location}/{name}" for name in task.directories]
    present = [path for path in paths if files.is_directory(path)]
    for name in task.directories:
        remove_at_once(files, location, name, task.txn_id)
    sync_removals(files, paths)
    metastore.call(EndPublication(task.lock))
    return present


def remove_of(metastore: Metastore, table: str, partition: str | None) -> None:
    """What earlier attempts to compact this table or partition have left. Raises like `remove`."""
    for task in metastore.call(GetUnpublished()):
        if (task.table, task.partition) == (table, partition):
            remove(metastore, task)
