"""Which engine executes a compaction: Spark, or this process if little has to be read (P33)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from acid_platform.base.table_properties import LOCAL_COMPACTION_BYTES
from acid_platform.compaction.execution import Compaction, CompactionEngine
from acid_platform.engine.choice import Engines
from acid_platform.engine.local.compact import LocalCompaction, only_spark
from acid_platform.errors import CompactionRefused, NeedsSpark


@dataclass(frozen=True, slots=True)
class CompactionChoice:
    """An engine, and why it was chosen."""

    engine: CompactionEngine
    reason: str
    instead: Callable[[str], CompactionChoice] | None = None
    """Given the reason, the engine for what this one finds that it can't while it reads."""


def choose(engines: Engines, compaction: Compaction) -> CompactionChoice:
    """The engine that the warehouse prefers; with `auto`, this process for at most `local_bytes` of
    inputs. Spark starts only if it is chosen.

    With engine='local' the size does not matter, since memory is bounded. Raises NeedsSpark if only
    the local engine may run, and can't; CompactionRefused for avro, which neither can write.
    """
    location, size = compaction.plan.location, compaction.plan.input_bytes
    limit = compaction.plan.settings.local_bytes
    if compaction.plain and compaction.plain.name == "avro":
        raise CompactionRefused(
            f"{location}: avro files can't be compacted here yet; read and overwrite the partition"
            " instead"
        )
    if engines.preferred_here == "spark":
        return _spark(engines, compaction, "engine=spark")
    if compaction.plain is not None and (why := only_spark(compaction)):
        if engines.preferred_here == "local":
            raise NeedsSpark(f"{location}: {why}; use engine='auto' or engine='spark'")
        return _spark(engines, compaction, why)
    if engines.preferred_here == "local":
        return CompactionChoice(LocalCompaction(compaction), "engine=local")
    if size > limit:
        why = f"{size:,} bytes to read are more than {LOCAL_COMPACTION_BYTES} = {limit:,}"
        return _spark(engines, compaction, why)
    return CompactionChoice(
        LocalCompaction(compaction), f"{size:,} bytes to read", partial(_spark, engines, compaction)
    )


def _spark(engines: Engines, compaction: Compaction, reason: str) -> CompactionChoice:
    from acid_platform.engine.spark.compact import SparkCompaction

    return CompactionChoice(SparkCompaction(engines.spark.spark, compaction), reason)
