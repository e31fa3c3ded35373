"""What a reader needs of one entity of a snapshot, opened in the right order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from acid_platform.errors import CorruptFile
from acid_platform.snapshot.directory import AcidDirectory
from acid_platform.snapshot.sources import EntitySources, SourceKind
from acid_platform.storage.deletes import DeleteKeys, load_keys
from acid_platform.storage.files import Files
from acid_platform.storage.recorded import require_recorded
from acid_platform.storage.sources import resolve
from acid_platform.transactions import ValidWriteIdList


def open_entity(
    files: Files,
    directory: AcidDirectory,
    write_ids: ValidWriteIdList,
    what: str,
    prune: Callable[[EntitySources], EntitySources] = lambda sources: sources,
) -> tuple[EntitySources, DeleteKeys]:
    """The files that a snapshot reads, and the keys that it deletes; `what` names the table.

    What `prune` leaves out is not looked at. Raises CorruptFile, also for a file that is gone or
    has another size than its commit recorded.
    """
    sources = prune(resolve(files, directory))
    require_recorded(files, (*sources.inserts, *sources.deletes), what)
    keys = load_keys(files, sources.deletes, write_ids)
    return _numbered_as_deleted(sources, keys), keys


def _numbered_as_deleted(sources: EntitySources, keys: DeleteKeys) -> EntitySources:
    """Rows of RAW files get the bucket property that the table's delete events call them by.

    That is codec 1, or codec 0 (the bare number, F10) if Hive 2 wrote the events:
    positions have an identity only through them.
    """
    raw = {one.write_id for one in sources.inserts if one.kind is SourceKind.RAW}
    if not raw or not len(keys):
        return sources
    meant = keys.buckets[np.isin(keys.write_ids, np.array(sorted(raw), np.int64))]
    codecs = set(((meant >> 29) & 7).tolist())
    if len(codecs) > 1:
        raise CorruptFile(
            f"{sources.location}: delete events call rows of files without ACID columns by two"
            " codecs of the bucket property; run a major compaction with the Hive that wrote them"
        )
    if codecs != {0}:
        return sources
    return replace(
        sources,
        inserts=tuple(
            replace(one, bucket=one.number or 0) if one.kind is SourceKind.RAW else one
            for one in sources.inserts
        ),
    )
