"""Locations in the answers of the metastore, as everybody else needs them (P31)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from acid_platform.metastore.operations.compaction import Cleanings
from acid_platform.metastore.operations.transactions import SeenTable
from acid_platform.metastore.places import Places
from acid_platform.metastore.records import PastTable, TableChanges, TableRecord
from acid_platform.metastore.tasks import DropCleaning, EntityCleaning, EntityState, Unpublication

A = TypeVar("A")

_LOCATED = (TableRecord, EntityState, EntityCleaning, DropCleaning, Unpublication)


def placed(places: Places, answer: A) -> A:
    """The answer of an operation, with whole paths or URIs in place of relative locations."""
    told: Any = answer
    if isinstance(told, _LOCATED):
        told = replace(told, location=places.outward(told.location))
    elif isinstance(told, list):
        if told and isinstance(told[0], _LOCATED):
            told = [placed(places, record) for record in told]
    elif isinstance(told, Cleanings):
        told = replace(told, ready=placed(places, told.ready))
    elif isinstance(told, PastTable | TableChanges):
        told = replace(told, table=placed(places, told.table))
    elif isinstance(told, dict):
        told = {key: _seen(places, value) for key, value in told.items()}
    whole: A = told
    return whole


def _seen(places: Places, value: Any) -> Any:
    if isinstance(value, SeenTable):
        return replace(value, record=placed(places, value.record))
    return value
