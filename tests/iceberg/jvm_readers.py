"""Spark with Iceberg's runtime, and Trino, as readers of the REST catalog."""

from __future__ import annotations

import base64
import datetime
import json
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import feather

from benchmarks.peers.versions import cache_directory, jar_settings, python_of
from tests.iceberg.asked_readers import Asked
from tests.iceberg.found_rows import Row, shaped
from tests.interop.trino import Trino, Unavailable

_SPARK = """
import json, os, sys
from pyarrow import feather
from pyspark.sql import SparkSession
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
build = SparkSession.builder.master("local[2]")
for name, value in json.loads(sys.argv[1]).items():
    build = build.config(name, value)
spark = build.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
for line in sys.stdin:
    sql, out = json.loads(line)
    try:
        feather.write_feather(spark.sql(sql).toArrow(), out, compression="uncompressed")
        answer = ""
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), file=answers, flush=True)
spark.stop()
"""
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Skipped(Exception):
    """A reader that can't be had; the text says why."""


class Refused(Exception):
    """A reader's error."""


class SparkReader:
    """A process with a session of the Spark that Iceberg has a runtime for."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path) -> None:
        self._process, self._out = process, scratch / "spark.arrow"

    @classmethod
    @contextmanager
    def started(cls, scratch: Path, address: str) -> Iterator[SparkReader]:
        """Raises Skipped."""
        cache = cache_directory()
        python = python_of("iceberg", cache)
        if python is None:
            raise Skipped("the packages of its Spark can't be installed")
        catalog = "spark.sql.catalog.lake"
        settings = jar_settings("iceberg", cache) | {
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": _JAVA,
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "rest",
            f"{catalog}.uri": address,
            f"{catalog}.cache-enabled": "false",
            f"{catalog}.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        }
        pipe = subprocess.PIPE
        command = [str(python), "-c", _SPARK, json.dumps(settings)]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        try:
            yield cls(process, scratch)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()

    def find(self, asked: Asked) -> list[Row]:
        """Raises Refused."""
        source = f"lake.{asked.name} VERSION AS OF {asked.moment}"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = [f"SELECT * {asked.from_clause(source)}", str(self._out)]
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        if error := json.loads(self._process.stdout.readline()):
            raise Refused(error)
        return asked.shaped(feather.read_table(self._out, memory_map=False).to_pylist())


class TrinoReader:
    """A server of Trino."""

    HOME: ClassVar = Path(__file__).resolve().parents[2] / "var" / "interop"

    def __init__(self, trino: Trino) -> None:
        self._trino = trino

    @classmethod
    @contextmanager
    def started(cls, home: Path, scratch: Path, address: str) -> Iterator[TrinoReader]:
        """Raises Skipped."""
        home.mkdir(parents=True, exist_ok=True)
        try:
            trino = Trino(home.absolute(), scratch / "trino", {}, {"lake": address})
        except Unavailable as error:
            raise Skipped(str(error)) from error
        try:
            trino.await_start()
            yield cls(trino)
        except Unavailable as error:
            raise Skipped(str(error)) from error
        finally:
            trino.stop()

    def find(self, asked: Asked) -> list[Row]:
        """Raises tests.interop.trino.Failed."""
        source = f"{asked.name} FOR VERSION AS OF {asked.moment}"
        names = ", ".join(f'"{field.name}"' for field in asked.schema)
        rows = self._trino.sql(f"SELECT {names} {asked.from_clause(source)}", "lake")
        pairs = [zip(asked.schema, row, strict=True) for row in rows]
        return [
            {field.name: shaped(value, field.type, _of_json) for field, value in row}
            for row in pairs
        ]


def _of_json(value: Any, kind: pa.DataType) -> Any:
    """A value that is not nested, from Trino's JSON, where keys of maps are texts."""
    if pa.types.is_boolean(kind):
        return value in (True, "true")
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_floating(kind):
        number = float(value)
        return struct.unpack("f", struct.pack("f", number))[0] if kind == pa.float32() else number
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return datetime.datetime.fromisoformat(value.removesuffix(" UTC"))
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    return value
