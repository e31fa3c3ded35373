"""Opening one entity of a snapshot for a reader: its files and its deleted keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from acid_platform.base.errors import CorruptFile
from acid_platform.snapshot.directory import AcidDirectory
from acid_platform.snapshot.sources import EntitySources, Source, SourceKind
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
    load: Callable[[Files, Sequence[Source], ValidWriteIdList], DeleteKeys] = load_keys,
) -> tuple[EntitySources, DeleteKeys]:
    """The files that a snapshot reads, and the deleted keys; `what` names the table in errors.

    Files that `prune` drops are not opened. `load` loads the deleted keys. Raises CorruptFile, also
    if a file is gone or does not have the size that its commit recorded.
    """
    sources = prune(resolve(files, directory))
    require_recorded(files, (*sources.inserts, *sources.deletes), what)
    keys = load(files, sources.deletes, write_ids)
    return numbered_as_deleted(sources, keys), keys


def numbered_as_deleted(sources: EntitySources, keys: DeleteKeys) -> EntitySources:
    """The sources, with RAW files in the bucket codec that the delete events use for their rows.

    Rows of RAW files store no bucket property, so only the delete events tell it: codec 1, or
    codec 0 (the bare number, F10) if Hive 2 wrote the events. Raises CorruptFile if they mix.
    """
    raw = {source.write_id for source in sources.inserts if source.kind is SourceKind.RAW}
    if not raw or not len(keys):
        return sources
    meant = keys.buckets[np.isin(keys.write_ids, np.array(sorted(raw), np.int64))]
    codecs = set(((meant >> 29) & 7).tolist())
    if len(codecs) > 1:
        raise CorruptFile(
            f"{sources.location}: delete events identify rows of files without ACID columns by two"
            " different bucket codecs; run a major compaction with the Hive that wrote them"
        )
    if codecs != {0}:
        return sources
    return replace(
        sources,
        inserts=tuple(
            replace(source, bucket=source.number or 0) if source.kind is SourceKind.RAW else source
            for source in sources.inserts
        ),
    )
