"""Spark's JVM: how it starts, and what its end means for those who wait for it (P60).

Its stderr is passed on without one useless line: `log4j2.properties` beside this module suppresses
what Spark would log at start, but Java itself warns about the incubator module that Spark uses, and
no option suppresses that. For a warehouse in an object store, Spark needs Hadoop's connector, which
is not in PySpark. ACID_SPARK_PACKAGES names packages in Maven Central, which Spark fetches when its
JVM starts; the scheme of a store, `s3`, stands for what its connector needs.

A call into the JVM waits for bytes of a socket, which the system closes when the JVM ends. So there
is one place to look: where Py4J, or the client of Spark Connect, has lost its connection. That a
JVM without memory ends, and does not go on without the thread that everybody waits for, is a
setting of ours (DEATH_OPTIONS).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from acid_platform.base.clock import elapsed_seconds
from acid_platform.base.object_store import BY_SCHEME, STORES
from acid_platform.engine.spark import installed_version
from acid_platform.errors import SparkLost

_IN_SPARK = ("org.slf4j:slf4j-api", "commons-logging:commons-logging")
"""Spark has both. Maven leaves their descriptions alone in ~/.m2 when it chose other versions of
them, and Spark, which looks there first, then fails to find their jars."""
EXECUTOR_VARIABLE = "spark.executorEnv."
"""Spark's settings that begin so are the environment variables of executors."""


def store_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings for packages and stores that the environment asks for, before the JVM starts."""
    settings: dict[str, str] = {}
    for store in STORES:
        settings |= store.hadoop_settings(environment)
    hadoop = installed_version().hadoop
    fetched = {store.name: store.older_packages.get(hadoop, store.packages) for store in STORES}
    packages: list[str] = []
    for name in filter(None, environment.get("ACID_SPARK_PACKAGES", "").split(",")):
        named = BY_SCHEME.get(name.strip())
        packages += fetched[named.name] if named else (name.strip(),)
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
    connected = [
        store for store in STORES if store.packages and {*fetched[store.name]} <= {*packages}
    ]
    if connected:
        left_out = [name for store in connected for name in store.left_out]
        settings["spark.jars.excludes"] = ",".join((*left_out, *_IN_SPARK))
    return settings


def executor_variables(
    environment: Mapping[str, str] = os.environ, keys: bool = True
) -> dict[str, str]:
    """The settings that give executors on a cluster what their tasks open the store with.

    Tasks write through pyarrow.fs, which reads the environment. Spark's own readers get the same
    keys from the driver's environment without our help. `keys`: the credentials too; they must not
    get into a command line, which other users can see.
    """
    names = [name for store in STORES for name in (*store.places, *(store.keys if keys else ()))]
    return {
        f"{EXECUTOR_VARIABLE}{name}": environment[name] for name in names if environment.get(name)
    }


LOG_OPTION = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
"""For the driver's JVM: log only errors, on stderr."""

DEATH_OPTIONS = "-XX:+ExitOnOutOfMemoryError -XX:+DisplayVMOutputToStderr"
"""For the driver's JVM: without memory it ends at once and says so on stderr. Otherwise a thread of
Spark's ends, and whoever waits for its answer waits for ever (P60)."""

SILENCED = b"WARNING: Using incubator modules: jdk.incubator.vector"
STDERR = 2


def launch(settings: Mapping[str, str]) -> None:
    """Starts the JVM for this process's next session with these settings, unless one runs.

    The JVM's command line has all of them but the variables of executors, such as keys of a store:
    these come with the session. Raises PySparkRuntimeError if it ends at once; it has printed the
    reason on stderr.
    """
    if SparkContext._gateway is not None:
        return
    shown = [pair for pair in settings.items() if not pair[0].startswith(EXECUTOR_VARIABLE)]
    reader, writer = os.pipe()
    threading.Thread(target=_pass_on, args=(reader,), name="spark-stderr", daemon=True).start()
    try:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            SparkConf(loadDefaults=False).setAll(shown), {"stderr": writer}
        )
    finally:
        os.close(writer)
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(reader: int) -> None:
    """Copies the JVM's stderr until the JVM ends."""
    with os.fdopen(reader, "rb") as lines:
        for line in lines:
            if line.rstrip() != SILENCED:
                os.write(STDERR, line)


SOON = 5.0
"""Seconds in which a JVM that has closed its sockets ends."""
_OUT_OF_MEMORY = 3
"""The status of a JVM that ends because its heap is full (ExitOnOutOfMemoryError)."""
_MEMORY = "spark.driver.memory"


class _Watched:
    """The JVM behind the sessions of a Py4J client."""

    def __init__(self, process: subprocess.Popen[bytes] | None, memory: str) -> None:
        self.process, self.memory = process, memory
        self.ended = False
        self._own = os.getpid()

    def has_ended(self, wait: float = 0.0) -> bool:
        """Whether it has ended, or does within so many seconds. Without a process that is known,
        as if Spark has started this one, whoever waits has lost the connection to it."""
        if not self.ended and os.getpid() == self._own:
            if self.process is None:
                self.ended = wait > 0
            else:
                try:
                    self.process.wait(wait)
                    self.ended = True
                except subprocess.TimeoutExpired:
                    return False
            if self.ended:
                _forget()
        return self.ended

    def require_alive(self, wait: float = 0.0) -> None:
        """Raises SparkLost if it has ended, or does within so many seconds."""
        if self.has_ended(wait):
            raise self.error()

    def error(self) -> SparkLost:
        code = None if self.process is None else self.process.returncode
        heap = f"its heap of {self.memory} was full"
        if code is None:
            why = "nobody tells why"
        elif code == _OUT_OF_MEMORY:
            why = heap
        elif code < 0:
            killed = f"it was killed by {signal.Signals(-code).name}"
            why = f"{killed}, as a system does without memory" if code == -9 else killed
        else:
            why = f"its status was {code}"
        return _lost(f"the JVM of the Spark session has ended: {why}")


def _lost(what: str) -> SparkLost:
    return SparkLost(
        f"{what}; what it computed is lost. Run it again, in another session: with more memory by"
        " ACID_SPARK_MEMORY (spark.driver.memory), or without a JVM by engine='local'"
    )


_watched: WeakKeyDictionary[Any, _Watched] = WeakKeyDictionary()
"""By the client of Py4J."""


def watch(spark: SparkSession) -> None:
    """From now on every call of this session that finds its JVM, or its server, gone raises
    SparkLost. Calling this again has no effect."""
    client = getattr(getattr(spark, "_jvm", None), "_gateway_client", None)
    if client is None:
        _watch_server(spark)
    elif client not in _watched:
        _watch_client(client, str(spark.sparkContext.getConf().get(_MEMORY, "1g")))


def has_ended(spark: SparkSession) -> bool:
    """Whether the JVM of this session is gone; False for Spark Connect, whose server may return."""
    client = getattr(getattr(spark, "_jvm", None), "_gateway_client", None)
    watched = None if client is None else _watched.get(client)
    return watched is not None and watched.has_ended()


def current() -> _Watched | None:
    """The JVM of this process, if there is one whose sessions are watched."""
    gateway: Any = SparkContext._gateway
    return None if gateway is None else _watched.get(gateway._gateway_client)


def is_there() -> bool:
    """Whether this process has a JVM of Spark's, whoever started it; Spark Connect has none."""
    return SparkContext._gateway is not None


def require_alive(spark: SparkSession) -> None:
    """Raises SparkLost if the JVM of this session is gone, so that no other one starts in vain for
    a frame of it."""
    if has_ended(spark):
        client: Any = spark._jvm._gateway_client  # type: ignore[union-attr]
        _watched[client].require_alive()


def _watch_client(client: Any, memory: str) -> None:
    """Py4J asks `_should_retry` when a call has lost its connection, and nobody else."""
    watched = _Watched(getattr(SparkContext._gateway, "proc", None), memory)
    connect, should_retry = client._get_connection, client._should_retry

    def connected() -> Any:
        watched.require_alive()
        try:
            return connect()
        except (Py4JError, OSError) as error:
            if watched.has_ended(SOON):
                raise watched.error() from error
            raise

    def retried(retry: Any, connection: Any, failure: Any = None) -> Any:
        if watched.has_ended(SOON):
            raise watched.error() from failure
        return should_retry(retry, connection, failure)

    client._get_connection, client._should_retry = connected, retried
    _watched[client] = watched


def _forget() -> None:
    """Lets the next session of this process start a JVM; PySpark would return the old one."""
    SparkSession._instantiatedSession = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None


# --- Spark Connect -------------------------------------------------------------------------------


_ONE_LOSS = 10.0
"""Seconds in which a server that is found gone again has not come back meanwhile."""


def _watch_server(spark: Any) -> None:
    """PySpark would ask a server that is gone for ten minutes. It is asked for about five seconds,
    and then at most once by each call of the same statement, which ends its jobs and its tags."""
    from grpc import RpcError, StatusCode  # type: ignore[import-untyped]
    from pyspark.sql.connect.client.retries import DefaultPolicy

    client = spark.client
    if getattr(client, "_acid_watched", False):
        return
    handle, lost_at = client._handle_error, -_ONE_LOSS

    def is_gone(error: BaseException) -> bool:
        return isinstance(error, RpcError) and error.code() == StatusCode.UNAVAILABLE

    class Patience(DefaultPolicy):
        def can_retry(self, error: BaseException) -> bool:
            again = is_gone(error) and elapsed_seconds() - lost_at < _ONE_LOSS
            return not again and super().can_retry(error)

    def handled(error: Any, *more: Any, **named: Any) -> Any:
        nonlocal lost_at
        if is_gone(error):
            lost_at = elapsed_seconds()
            raise _lost(f"the Spark Connect server does not answer: {error.details()}") from error
        return handle(error, *more, **named)

    client._handle_error = handled
    client.set_retry_policies([Patience(max_retries=6, max_backoff=1500, jitter=0)])
    client._acid_watched = True
