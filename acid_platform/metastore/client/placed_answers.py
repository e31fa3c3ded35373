"""Locations in the answers of the metastore, as everybody else needs them (P31)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acid_platform.metastore import operations as ops
from acid_platform.metastore.places import Places
from acid_platform.metastore.records import PastTable, TableChanges, TableRecord, ViewRecord
from acid_platform.metastore.tasks import DropCleaning, EntityCleaning, EntityState, Unpublication

_LOCATED = (TableRecord, EntityState, EntityCleaning, DropCleaning, Unpublication)
_LISTED = (*_LOCATED, ViewRecord)


def placed(places: Places, answer: Any) -> Any:
    """The answer of an operation, with whole paths or URIs in place of relative locations."""
    if isinstance(answer, _LOCATED):
        return replace(answer, location=places.outward(answer.location))
    if isinstance(answer, list) and answer and isinstance(answer[0], _LISTED):
        return [placed(places, record) for record in answer]
    if isinstance(answer, dict):
        return {key: placed(places, value) for key, value in answer.items()}
    if isinstance(answer, ViewRecord) and answer.external is not None:
        external = answer.external
        there = {name: places.outward(where) for name, where in external.partitions.items()}
        moved = replace(external, location=places.outward(external.location), partitions=there)
        return replace(answer, external=moved)
    if isinstance(answer, ops.Cleanings):
        return replace(answer, ready=placed(places, answer.ready))
    if isinstance(answer, PastTable | TableChanges):
        return replace(answer, table=placed(places, answer.table))
    if isinstance(answer, ops.Granted) and answer.seen:
        seen = (replace(one, record=placed(places, one.record)) for one in answer.seen)
        return replace(answer, seen=tuple(seen))
    return answer
