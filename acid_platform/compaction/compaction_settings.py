"""What the warehouse, a table and a request say about one compaction, as one value.

No other module reads a property or a setting for the plan, the merge or an engine of a compaction:
a new one becomes a field here, and whoever has the plan has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from acid_platform.base.config import Settings, setting
from acid_platform.base.table_properties import (
    JOB_PREFIX,
    LOCAL_COMPACTION_BYTES,
    MOST_DELTAS,
    PUBLICATION_WAIT,
    QUEUES,
)
from acid_platform.compaction.states import Layout
from acid_platform.layout.formats import compression


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How one compaction is done."""

    layout: Layout = Layout.HIVE4
    compression: str = "zlib"
    """The codec of ORC files, as Spark and Arrow spell it."""
    most_inputs: int = 500
    """The most files that one task merges at a time (C34)."""
    local_bytes: int = 0
    """The most bytes of inputs that are merged in this process, unless the engine is given."""
    publication_wait: float = 0.0
    """For how many seconds other engines may hold up the publication (P46)."""
    pool: str = ""
    """The scheduler pool of Spark's jobs; empty: the default."""

    @classmethod
    def of(
        cls, settings: Settings, request: Mapping[str, str], table: Mapping[str, str]
    ) -> CompactionSettings:
        """`compactor.<name>` of the request wins, then that of the table, then the warehouse's
        value (C22). Raises SettingRefused."""

        def text(*names: str) -> str:
            """The value of the first name that a property overrides, else of the first name."""
            overrides = (
                properties[JOB_PREFIX + name]
                for properties in (request, table)
                for name in names
                if JOB_PREFIX + name in properties
            )
            return next(overrides, settings.text(names[0]))

        def number(name: str) -> float:
            return float(setting(name).parse(text(name)))

        return cls(
            Layout.of(table),
            compression(table),
            int(number(MOST_DELTAS)),
            int(number(LOCAL_COMPACTION_BYTES)),
            number(PUBLICATION_WAIT) / 1000,
            text(*QUEUES),
        )
