"""Spark's settings for a warehouse in S3: Hadoop's connector, and the server of the environment.

The connector is not in PySpark. ACID_SPARK_PACKAGES names packages in Maven Central, which Spark
fetches when its JVM starts; `s3` stands for S3_PACKAGES.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

HADOOP = "3.5.0"
"""The version of the Hadoop client in PySpark: the connector must have the same."""
_SDK = "2.35.4"
"""The version of Amazon's SDK that this connector was made for."""
S3_PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    *(f"software.amazon.awssdk:{name}:{_SDK}" for name in ("s3", "s3-transfer-manager", "sts")),
)
"""20 MB instead of 700: the connector asks for the SDK's bundle, which has every service of AWS."""
_LEFT_OUT = (
    "software.amazon.awssdk:bundle",
    # Spark has both. Maven leaves their descriptions alone in ~/.m2 when it chose other versions of
    # them, and Spark, which looks there first, then fails to find their jars.
    "org.slf4j:slf4j-api",
    "commons-logging:commons-logging",
)
_CONNECTOR = "org.apache.hadoop.fs.s3a.S3AFileSystem"

EXECUTOR_VARIABLE = "spark.executorEnv."
"""Spark's settings that begin so are the environment variables of executors."""
_PLACES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def store_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings for packages and S3 that the environment asks for, before the JVM starts."""
    settings = {
        # The warehouse's URIs begin with s3, whatever Hadoop calls its connector.
        "spark.hadoop.fs.s3.impl": _CONNECTOR,
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
    }
    packages = environment.get("ACID_SPARK_PACKAGES", "")
    if packages:
        named = [
            part
            for given in packages.split(",")
            for part in (S3_PACKAGES if given.strip() == "s3" else (given.strip(),))
        ]
        settings["spark.jars.packages"] = ",".join(named)
        if set(S3_PACKAGES) <= set(named):
            settings["spark.jars.excludes"] = ",".join(_LEFT_OUT)
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if endpoint:
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
        ssl = str(urlsplit(endpoint).scheme == "https").lower()
        settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] = ssl
        region = region or "us-east-1"
    if region:
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings


def executor_variables(
    environment: Mapping[str, str] = os.environ, keys: bool = True
) -> dict[str, str]:
    """The settings that give executors on a cluster what their tasks open the store with.

    Tasks write through pyarrow.fs, which reads the environment. Spark's own readers get the same
    keys from the driver's environment without our help. `keys`: the credentials too; they must not
    get into a command line, which other users can see.
    """
    names = (*_PLACES, *_KEYS) if keys else _PLACES
    return {
        f"{EXECUTOR_VARIABLE}{name}": environment[name] for name in names if environment.get(name)
    }
