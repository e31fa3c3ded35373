"""The resources of a project, the warehouse and Spark, and how its definitions are loaded."""

from __future__ import annotations

import os
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import BaseModel, Field, PrivateAttr

from acid_platform.base.location import Location
from acid_platform.base.progress import shown
from acid_platform.engine.choice import names_cluster, preference_of
from acid_platform.errors import AcidError, InvalidDefinition
from acid_platform.handles.warehouse import Warehouse
from acid_platform.orchestration.run_branches import enter_branch

if TYPE_CHECKING:
    from dagster import DagsterLogManager
    from pyspark.sql import SparkSession

    from acid_platform.handles.warehouse import SparkOrStart

DEFAULT_PATH = "var/warehouse"
PROGRESS_SECONDS = 10


@contextmanager
def progress_in(log: DagsterLogManager) -> Iterator[None]:
    """Logs what the block tells of its progress, each ten seconds."""
    logged = time.monotonic()

    def show(what: str, count: int, total: int | None) -> None:
        nonlocal logged
        if time.monotonic() - logged >= PROGRESS_SECONDS:
            logged = time.monotonic()
            log.info(f"{what}: {count:,}" + (f" of {total:,}" if total else ""))

    with shown(show):
        yield


class OwnSettings(BaseModel):
    """A resource that takes no settings but its own: Dagster would ignore others, and another
    warehouse would be opened."""

    def __init__(self, **settings: Any) -> None:
        """Raises InvalidDefinition for a setting that there is not."""
        fields = type(self).model_fields
        names = [field.alias or name for name, field in fields.items()]
        for name in settings:
            if name not in (*names, *fields):
                raise InvalidDefinition(
                    f"{type(self).__name__} has no setting {name!r}; it takes {', '.join(names)}"
                )
        super().__init__(**settings)


class WarehouseResource(OwnSettings, dg.ConfigurableResource):  # type: ignore[type-arg]
    """Opens the warehouse that steps, jobs and sensors use.

    Environment variables are read when the warehouse is opened, so definitions load without them.
    """

    path: str | None = Field(
        default=None,
        description=f"Directory or URI; default: ACID_WAREHOUSE, else {DEFAULT_PATH}.",
    )
    metastore: str | None = Field(
        default=None,
        description="Directory of the metastore; default: ACID_METASTORE, else inside a local"
        " warehouse.",
    )
    engine: str | None = Field(
        default=None,
        description="auto, spark or local; default: ACID_ENGINE, else auto.",
    )

    _context: dg.InitResourceContext | None = PrivateAttr(default=None)

    def __init__(self, **settings: Any) -> None:
        """Raises InvalidDefinition for a setting that there is not, and for an unknown engine."""
        super().__init__(**settings)
        if self.engine and not isinstance(settings["engine"], dg.EnvVar):
            preference_of(self.engine)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self._context = context

    def open(
        self,
        run_id: str = "",
        spark: SparkOrStart | SparkResource = None,
        branch: str | None = None,
    ) -> Warehouse:
        """Open a handle whose transactions and leases carry the run id; the caller closes it.

        Spark starts, or is asked of a function, only when an operation needs it. `branch`: default
        ACID_BRANCH, else that of the run's tag `acid/branch`; services work without one, and pass
        an empty text. Raises NoSuchBranch, InvalidDefinition for an unknown engine,
        WarehouseNotWritable, MetastoreUnavailable.
        """
        resource: Any = spark
        start = resource
        if hasattr(type(spark), "spark_session"):
            start = partial(getattr, resource, "spark_session")
        handle = Warehouse.open(
            self.where, start, self.metastore, run_id, engine=self.engine, branch=branch
        )
        if isinstance(resource, SparkResource):
            handle.engines.on_cluster = resource.on_cluster
        if branch is None and self._context is not None:
            try:
                enter_branch(handle, self._context)
            except BaseException:
                handle.close()
                raise
        return handle

    @property
    def location(self) -> Location:
        """Where the warehouse and its metastore are, or would be made. Raises InvalidDefinition."""
        return Location.of(self.where, self.metastore)

    @property
    def where(self) -> str:
        """The path or URI as it is configured."""
        return self.path or os.environ.get("ACID_WAREHOUSE") or DEFAULT_PATH


class SparkResource(OwnSettings, dg.ConfigurableResource):  # type: ignore[type-arg]
    """The Spark session of the process, started at first use and never stopped.

    What `LazyPySparkResource` of dagster-pyspark does, which is not its base class, because its
    module imports pyspark: most runs need none.

    All steps and runs of a process share it. Fields that are not set default to ACID_SPARK_MASTER,
    ACID_SPARK_REMOTE and ACID_SPARK_MEMORY. The session is checked when it starts: interpreter,
    UTC and the settings that results depend on (P12, P17).
    """

    spark_config: dict[str, Any] = Field(
        default_factory=dict, description="Spark settings, as dagster-pyspark takes them."
    )
    master: str | None = Field(default=None, description="Spark master, such as local[2].")
    remote: str | None = Field(
        default=None, description="Address of a Spark Connect server to use instead of a local JVM."
    )
    memory: str | None = Field(default=None, description="Heap of the driver's JVM, such as 2g.")
    conf: dict[str, str] = Field(
        default_factory=dict, description="More Spark settings; they override all others."
    )

    _session: Any = PrivateAttr(default=None)

    @property
    def spark_session(self) -> SparkSession:
        """The session, which is started if needed. Raises JavaMissing, SparkMisconfigured."""
        if self._session is None:
            self._session = self._start()
        session: SparkSession = self._session
        return session

    @property
    def spark_context(self) -> Any:
        return self.spark_session.sparkContext

    def on_cluster(self) -> bool:
        """Whether the session is one of a cluster, or of a Spark Connect server."""
        from dagster_spark.utils import flatten_dict

        flat = flatten_dict({**self.spark_config, **self.conf})  # type: ignore[no-untyped-call]
        own = dict(flat)
        return names_cluster(own.get("spark.master") or self.master, self.remote)

    def _start(self) -> SparkSession:
        from dagster_pyspark.resources import spark_session_from_config
        from dagster_spark.utils import flatten_dict

        from acid_platform.engine.spark import jvm, session

        master = self.master or session.spark_master()
        session.prepare_environment(master)
        remote = self.remote or os.environ.get("ACID_SPARK_REMOTE")
        if remote:
            return session.start_session(remote=remote)
        session.require_java()
        platform = session.spark_config(
            master,
            self.memory or os.environ.get("ACID_SPARK_MEMORY") or "2g",
        )
        settings = {**platform, **self.spark_config, **self.conf}
        flat = flatten_dict(settings)  # type: ignore[no-untyped-call]
        jvm.launch({name: _text(value) for name, value in flat})
        return session.check_session(spark_session_from_config(settings))  # type: ignore[no-untyped-call]


def _text(value: Any) -> str:
    """The value as spark-submit takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def restore_environment() -> None:
    """Gives the settings the values that `make dev` was told: Dagster lets .env override them, and
    would open the warehouse that stands there."""
    written = os.environ.get("ACID_ENVIRONMENT")
    if written is None:
        return
    for name in [name for name in os.environ if name.startswith("ACID_")]:
        del os.environ[name]
    os.environ |= dict(line.split("=", 1) for line in written.splitlines() if "=" in line)
    os.environ["ACID_ENVIRONMENT"] = written


_PLATFORM = Path(__file__).parents[1]


def load_defs(folder: Path) -> dg.Definitions:
    """As dg.load_from_defs_folder, which shows an error of ours three times, with all frames: here
    it is shown once, with the line of the project that it is about."""
    try:
        return dg.load_from_defs_folder(path_within_project=folder)
    except AcidError as error:
        frames = filter(partial(_is_of, folder), _frames(error))
        last = next(reversed(list(frames)), None)
        told = type(error)(*error.args)
    raise told.with_traceback(
        last and types.TracebackType(None, last.tb_frame, last.tb_lasti, last.tb_lineno)
    )


def _frames(error: BaseException | None) -> Iterator[types.TracebackType]:
    """Those of the error and of what it came from."""
    while error is not None:
        at = error.__traceback__
        while at is not None:
            yield at
            at = at.tb_next
        error = error.__cause__ or error.__context__


def _is_of(folder: Path, frame: types.TracebackType) -> bool:
    """Whether the frame is one of the project, which may have the platform and packages below."""
    file = Path(frame.tb_frame.f_code.co_filename)
    return file.is_relative_to(folder) and not (
        file.is_relative_to(_PLATFORM) or "site-packages" in file.parts
    )
