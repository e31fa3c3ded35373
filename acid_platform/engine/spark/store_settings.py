"""Spark's settings for a warehouse in an object store: Hadoop's connector, and the server.

The connector is not in PySpark. ACID_SPARK_PACKAGES names packages in Maven Central, which Spark
fetches when its JVM starts; the scheme of a store, `s3`, stands for what its connector needs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from acid_platform.base.object_store import BY_SCHEME, STORES

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
    packages: list[str] = []
    for name in filter(None, environment.get("ACID_SPARK_PACKAGES", "").split(",")):
        named = BY_SCHEME.get(name.strip())
        packages += (named and named.packages) or (name.strip(),)
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
    connected = [store for store in STORES if store.packages and {*store.packages} <= {*packages}]
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
