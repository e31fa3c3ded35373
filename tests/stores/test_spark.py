"""Spark on each kind of store through Hadoop's connector, in a process whose JVM has that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkConf, SparkContext

from acid_platform import (
    CorruptFile,
    SparkMisconfigured,
    StoreRefused,
    StoreUnavailable,
)
from acid_platform.base.object_store import BY_SCHEME
from acid_platform.base.s3 import HADOOP, PACKAGES
from acid_platform.engine.spark import installed_version, jvm, session, spark_version
from acid_platform.engine.spark.failures import of_files
from acid_platform.engine.spark.jvm import store_settings
from scripts import spark_connect
from tests.stores.conftest import Bucket

_UNRESOLVED = "unresolved dependency"


def test_the_hadoop_client_in_pyspark_has_the_version_in_the_table() -> None:
    (client,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    assert client.stem.rpartition("-")[2] == installed_version().hadoop


@pytest.mark.parametrize(
    ("spark", "hadoop"),
    [("4.0.5", "3.4.1"), ("4.1.4", HADOOP), ("4.2.1", HADOOP), ("4.3.0", HADOOP)],
)
def test_spark_gets_a_connector_that_runs_on_its_hadoop(
    spark: str, hadoop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "installed_version", lambda: spark_version(spark))
    told = store_settings({"ACID_SPARK_PACKAGES": "s3"})
    assert f"org.apache.hadoop:hadoop-aws:{hadoop}" in told["spark.jars.packages"].split(",")
    assert "software.amazon.awssdk:bundle" in told["spark.jars.excludes"].split(",")


def test_the_settings_follow_the_environment() -> None:
    plain = store_settings({})
    assert not [name for name in plain if "packages" in name or "endpoint" in name]
    told = store_settings(
        {"ACID_SPARK_PACKAGES": "s3, a:b:1", "AWS_ENDPOINT_URL": "http://store:9000"}
    )
    assert told["spark.jars.packages"] == ",".join((*PACKAGES, "a:b:1"))
    excluded = told["spark.jars.excludes"].split(",")
    assert excluded == [
        "software.amazon.awssdk:bundle",
        "org.slf4j:slf4j-api",
        "commons-logging:commons-logging",
    ]
    assert told["spark.hadoop.fs.s3a.endpoint"] == "http://store:9000"
    assert told["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"


_AWS = {
    "AWS_ENDPOINT_URL": "http://store:9000",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "key-of-mine",
    "AWS_SECRET_ACCESS_KEY": "secret-of-mine",
    "AWS_SESSION_TOKEN": "",
    "AWS_PROFILE": "mine",
}


def test_executors_on_a_cluster_get_what_their_tasks_open_the_store_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in _AWS.items():
        monkeypatch.setenv(name, value)
    given = session.spark_config("spark://host:7077")
    variables = {
        name.removeprefix("spark.executorEnv."): value
        for name, value in given.items()
        if name.startswith("spark.executorEnv.AWS")
    }
    assert variables == {
        name: value for name, value in _AWS.items() if value and name != "AWS_PROFILE"
    }
    assert not [name for name in session.spark_config("local[2]") if "executorEnv" in name]


def test_keys_are_in_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users of the machine can list the words of its processes."""
    for name, value in _AWS.items():
        monkeypatch.setenv(name, value)
    launched: list[SparkConf] = []

    def launch(conf: SparkConf, _options: object) -> None:
        launched.append(conf)
        raise InterruptedError

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(jvm, "launch_gateway", launch)
    with pytest.raises(InterruptedError):
        jvm.launch(session.spark_config("spark://host:7077"))
    words = [f"{name}={value}" for name, value in launched[0].getAll()]
    connect = spark_connect.command("spark://host:7077", "1g", "127.0.0.1", 15002)
    assert any("http://store:9000" in word for word in words)
    assert "spark.executorEnv.AWS_ENDPOINT_URL=http://store:9000" in connect
    assert not [word for word in (*words, *connect) if "of-mine" in word]


def test_P41_what_hadoop_says_of_the_store_is_no_damaged_file() -> None:
    file = "s3://b/t/base_1/bucket_00000"
    read = f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {file}. "
    refused = (
        "Caused by: java.nio.file.AccessDeniedException: s3://b/t: open:"
        " software.amazon.awssdk.services.s3.model.S3Exception: Access Denied (Service: S3, Status"
        " Code: 403, Request ID: X)"
    )
    slow = (
        "Caused by: org.apache.hadoop.fs.s3a.AWSServiceThrottledException: open s3://b/t:"
        " software.amazon.awssdk.services.s3.model.S3Exception: Slow Down (Service: S3, Status"
        " Code: 503)"
    )
    torn = "Caused by: org.apache.orc.FileFormatException: Malformed ORC file"
    missing = "ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    denied = "Caused by: java.nio.file.AccessDeniedException: /disk/t/bucket_00000"
    for said, kind in (
        (f"{read}\n{refused}", StoreRefused),
        (f"{read}\n{slow}", StoreUnavailable),
        (f"{read}\n{torn}\n\tat org.apache.hadoop.fs.s3a.S3AInputStream.read", CorruptFile),
        (f"{read}\n{denied}", CorruptFile),
        (missing, SparkMisconfigured),
    ):
        assert type(of_files(RuntimeError(said))) is kind


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_P41_spark_writes_reads_and_compacts_in_a_store(bucket: Bucket, tmp_path: Path) -> None:
    with bucket.server.on_spark(tmp_path) as variables:
        done = subprocess.run(
            [sys.executable, "-m", "tests.stores.on_spark", bucket.server.url],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )
    if _UNRESOLVED in done.stdout + done.stderr:
        packages = BY_SCHEME[bucket.server.scheme].packages
        pytest.skip(f"{', '.join(packages)} can't be fetched from Maven Central")
    assert done.returncode == 0, done.stderr[-6000:]
    told = json.loads(done.stdout.splitlines()[-1])
    print(told["requests"])
    assert "COPY" not in told["requests"]["read"]
    assert told["findings"] == []
    left = [key for key in bucket.keys("db.t") if not key.endswith("/")]
    assert not [key for key in left if "_tmp_" in key or "delta" in key], left
