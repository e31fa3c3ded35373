"""Starting Spark's JVM; its stderr is passed on without one useless line.

`log4j2.properties` beside this module suppresses what Spark would log at start. Java itself warns
about the incubator module that Spark uses, and no option suppresses that.

For a warehouse in an object store, Spark needs Hadoop's connector, which is not in PySpark.
ACID_SPARK_PACKAGES names packages in Maven Central, which Spark fetches when its JVM starts; the
scheme of a store, `s3`, stands for what its connector needs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from acid_platform.base.object_store import BY_SCHEME, STORES
from acid_platform.engine.spark.spark_versions import installed_version

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
