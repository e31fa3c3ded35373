"""Which engine runs a statement or a compaction: Spark, or the local engine without a JVM (P33)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, TypeVar

from acid_platform.base.config import Settings
from acid_platform.engine.interface import Engine, Result, TableRead
from acid_platform.errors import AcidError, CompactionRefused, InvalidDefinition, NeedsSpark
from acid_platform.layout.table_properties import LOCAL_COMPACTION_BYTES
from acid_platform.values.row_streams import RowStream
from acid_platform.values.rows import Rows, is_spark_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acid_platform.compaction.execution import Compaction, CompactionEngine
    from acid_platform.engine.local.engine import LocalEngine
    from acid_platform.engine.spark.spark_engine import SparkEngine

Preference = Literal["auto", "spark", "local"]
"""`auto`: the local engine for what it can do, Spark for everything else, and where there is a
cluster, for what is large."""
LOCAL_BYTES = "acid.local.max.bytes"

_T = TypeVar("_T")


def preference_of(name: str) -> Preference:
    """Raises InvalidDefinition for a name that is no engine."""
    for preference in ("auto", "spark", "local"):
        if name.strip().lower() == preference:
            return preference
    raise InvalidDefinition(f"{name!r} is no engine; choose 'auto', 'spark' or 'local'")


def is_local(master: str) -> bool:
    """Whether the executors are threads of the driver's JVM."""
    return master.partition("[")[0] == "local"


def names_cluster(master: str | None = None, remote: str | None = None) -> bool:
    """Whether Spark is more than a JVM of this machine: these arguments or ACID_SPARK_MASTER name a
    cluster, or they or ACID_SPARK_REMOTE a Spark Connect server."""
    if remote or os.environ.get("ACID_SPARK_REMOTE"):
        return True
    return not is_local(master or os.environ.get("ACID_SPARK_MASTER") or "local")


def has_cluster(session: SparkSession) -> bool:
    """As `names_cluster` of a session that runs. Asks no JVM."""
    classic = hasattr(session, "_jsparkSession")  # the other kind is of Spark Connect
    return not classic or not is_local(session.sparkContext.master or "local")


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, and why it was chosen."""

    engine: Engine
    reason: str


class Engines:
    """The engines of a warehouse handle; each is loaded when it is first used. Thread-safe."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        preference: Preference = "auto",
        on_cluster: Callable[[], bool] = names_cluster,
    ) -> None:
        self.preference = preference
        self.on_cluster = on_cluster
        """Whether Spark has a cluster, which then takes what is large. Starts no Spark."""
        self._session = session
        self._guard = threading.Lock()
        self._thread = threading.local()
        self._spark: SparkEngine | None = None
        self._local: LocalEngine | None = None

    @contextmanager
    def using(self, engine: str | None) -> Iterator[None]:
        """What this thread runs in the block uses that engine; None leaves the choice as it is.

        Raises InvalidDefinition for a name that is no engine.
        """
        if engine is None:
            yield
            return
        before = getattr(self._thread, "preference", None)
        self._thread.preference = preference_of(engine)
        try:
            yield
        finally:
            self._thread.preference = before

    @property
    def preferred_here(self) -> Preference:
        """What this thread uses: the engine of the block that it is `using`, else the handle's."""
        here: Preference | None = getattr(self._thread, "preference", None)
        return here or self.preference

    @property
    def reason_here(self) -> str:
        """Why Spark runs what this thread does."""
        reason: str = getattr(self._thread, "reason", "")
        return reason or "its session was asked for"

    @contextmanager
    def _because(self, reason: str) -> Iterator[None]:
        """What starts Spark in the block does so for this reason."""
        before = getattr(self._thread, "reason", "")
        self._thread.reason = reason
        try:
            yield
        finally:
            self._thread.reason = before

    @property
    def spark(self) -> SparkEngine:
        from acid_platform.engine.spark.spark_engine import SparkEngine

        with self._guard:
            self._spark = self._spark or SparkEngine(self._session)
            return self._spark

    @property
    def local(self) -> LocalEngine:
        from acid_platform.engine.local.engine import LocalEngine

        with self._guard:
            self._local = self._local or LocalEngine(self._session)
            return self._local

    def cancel(self, txn: int) -> None:
        """Stops what the statements of a transaction are computing, in any engine used so far."""
        for engine in (self._spark, self._local):
            if engine is not None:
                engine.cancel(txn)

    def run(
        self,
        work: Callable[[Choice], _T],
        settings: Settings,
        rows: Rows | None = None,
        read_bytes: int = 0,
    ) -> _T:
        """The result of `work` with the chosen engine.

        `settings` are those of its transaction or lease; `rows` are its input and `read_bytes` the
        size of the files that it reads. Rows of this process are written here, however many they
        are (P59). Under `auto`, if the local engine raises NeedsSpark, Spark repeats the work.

        Raises NeedsSpark if only the local engine may run, and can't; also for a stream whose rows
        the local engine has taken before it found that it can't.
        """
        refused: NeedsSpark | None = None
        for choice in self._choices(settings, rows, read_bytes):
            if refused is not None and isinstance(rows, RowStream) and rows.gone:
                raise NeedsSpark(
                    f"{_REFUSED}: {refused}; the rows came as a stream, which can't be read again:"
                    " give a new one with engine='spark', or a table"
                )
            try:
                why = choice.reason if refused is None else str(refused)
                with self._because(why):
                    return work(replace(choice, reason=why))
            except NeedsSpark as error:
                refused = error
        assert refused is not None
        raise _only_spark(str(refused)) if self.preferred_here == "local" else refused

    def query(
        self, asked: Callable[[Engine, str], Result], settings: Settings, read_bytes: int
    ) -> Result:
        """The rows that `asked` returns for an engine and the reason for its choice.

        Spark repeats what the local engine can't go on with. Raises as `run`.
        """
        preference = self.preferred_here

        def query(choice: Choice) -> Result:
            result = asked(choice.engine, choice.reason)
            if choice.engine.name == "spark":
                return result
            return result.or_else(in_spark)

        def in_spark(error: AcidError) -> Result:
            if preference == "local":
                raise _only_spark(str(error)) if isinstance(error, NeedsSpark) else error
            if not isinstance(error, NeedsSpark) and find_spec("pyspark") is None:
                raise error  # of a value: installing Spark would not help
            with self._because(str(error)):
                return asked(self.spark, str(error))

        return self.run(query, settings, read_bytes=read_bytes)

    def select(self, text: str, reads: Mapping[str, TableRead], settings: Settings) -> Result:
        """The rows of a SELECT in Spark's SQL whose tables are the keys of `reads`.

        Raises as `run`.
        """
        read_bytes = sum(read.scan.read_bytes for read in reads.values())
        return self.query(
            lambda engine, reason: engine.query(text, reads, reason), settings, read_bytes
        )

    def reads_here(self, settings: Settings, read_bytes: int) -> bool:
        """Whether a query that reads so much runs in this process, if that can run it."""
        return self.preferred_here != "spark" and not self._for_cluster(settings, read_bytes)

    def _for_cluster(self, settings: Settings, read_bytes: int) -> str:
        """Why a cluster runs what reads so much; empty if this process does. On one machine Spark
        has no more memory and no more cores than this process, so size is no reason."""
        limit = settings.integer(LOCAL_BYTES)
        if self.preferred_here != "auto" or read_bytes <= limit or not self.on_cluster():
            return ""
        return f"{read_bytes:,} bytes to read are more than {LOCAL_BYTES} = {limit:,}"

    def _choices(self, settings: Settings, rows: Rows | None, read_bytes: int) -> Iterator[Choice]:
        preference = self.preferred_here
        if is_spark_frame(rows):
            from acid_platform.engine.spark.jvm import require_alive

            require_alive(rows.sparkSession)  # type: ignore[union-attr, arg-type]
        if preference == "spark":
            yield Choice(self.spark, "engine=spark")
            return
        if is_spark_frame(rows) or (isinstance(rows, Result) and rows.engine == "spark"):
            why = "the rows come from Spark"
        elif not (why := self._for_cluster(settings, read_bytes)):
            size = f"{read_bytes:,} bytes to read"
            yield Choice(self.local, "engine=local" if preference == "local" else size)
        if preference == "auto":
            yield Choice(self.spark, why)
        elif why:
            raise _only_spark(why)


def _only_spark(what: str) -> NeedsSpark:
    """The error for what the local engine can't do, where no other engine may run."""
    if what.startswith(_REFUSED):  # by a query whose rows this statement takes
        return NeedsSpark(what)
    return NeedsSpark(f"{_REFUSED}: {what}; engine='auto' or engine='spark' does it in Spark")


_REFUSED = "the local engine can't do this"


@dataclass(frozen=True, slots=True)
class CompactionChoice:
    """An engine, and why it was chosen."""

    engine: CompactionEngine
    reason: str
    instead: Callable[[str], CompactionChoice] | None = None
    """Given the reason, the engine for what this one finds that it can't while it reads."""


def choose(engines: Engines, compaction: Compaction) -> CompactionChoice:
    """The engine that the warehouse prefers; with `auto`, this process, but for more than
    `local_bytes` of inputs a cluster, if there is one. Spark starts only if it is chosen.

    Raises NeedsSpark if only the local engine may run, and can't; CompactionRefused for avro, which
    neither can write.
    """
    from acid_platform.engine.local.compact import LocalCompaction, only_spark

    location, size = compaction.plan.location, compaction.plan.input_bytes
    limit = compaction.plan.settings.local_bytes
    if compaction.format.name == "avro":
        raise CompactionRefused(
            f"{location}: avro files can't be compacted here yet; read and overwrite the partition"
            " instead"
        )
    if engines.preferred_here == "spark":
        return _spark(engines, compaction, "engine=spark")
    if not compaction.format.keyed and (why := only_spark(compaction)):
        if engines.preferred_here == "local":
            raise NeedsSpark(f"{location}: {why}; use engine='auto' or engine='spark'")
        return _spark(engines, compaction, why)
    if engines.preferred_here == "local":
        return CompactionChoice(LocalCompaction(compaction), "engine=local")
    if size > limit and engines.on_cluster():
        why = f"{size:,} bytes to read are more than {LOCAL_COMPACTION_BYTES} = {limit:,}"
        return _spark(engines, compaction, why)
    return CompactionChoice(
        LocalCompaction(compaction), f"{size:,} bytes to read", partial(_spark, engines, compaction)
    )


def _spark(engines: Engines, compaction: Compaction, reason: str) -> CompactionChoice:
    from acid_platform.engine.spark.spark_engine import SparkCompaction

    return CompactionChoice(SparkCompaction(engines.spark.spark, compaction), reason)
