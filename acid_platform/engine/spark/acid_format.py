"""Our file format for Spark, which reads ACID files: Java in `java/`, compiled by the session.

Spark's ORC reader hands on the columns of an ACID file inside the struct `row`, and needs the ACID
columns in every scan: code that Spark generates for each row looks at all of them. Our format takes
the columns out of `row` and the deleted rows out of each batch before that code runs, and gives the
filters of a query to ORC, which skips rows by them (F19). Spark carries a compiler for the code
that it generates itself, which compiles ours too, in a fifth of a second.

Where this can't be done (Spark Connect, a session with a class loader of its own), the platform
reads by Spark's own ORC reader, which takes longer and returns the same rows.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import zipfile
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from acid_platform.engine.spark.few_calls import java_class

READER_VARIABLE = "ACID_SPARK_READER"
"""`spark` lets Spark's own ORC reader read ACID files."""

_SOURCES = Path(__file__).parent / "java" / "acidplatform"
_RESOURCES = "org.codehaus.commons.compiler.util.resource"

_log = logging.getLogger(__name__)
_guard = threading.Lock()
_loaded: WeakKeyDictionary[SparkContext, bool] = WeakKeyDictionary()
_classes: WeakKeyDictionary[Any, dict[str, bytes]] = WeakKeyDictionary()
"""The class files of each JVM, by the client of its gateway. A JVM that has loaded them can't
compile their sources once more, and a later session of it starts without them."""


def has_acid_format(spark: SparkSession) -> bool:
    """Whether scans of this session can use the format; the first call loads it."""
    if os.environ.get(READER_VARIABLE) == "spark" or not hasattr(spark, "_jsparkSession"):
        return False
    context = spark.sparkContext
    with _guard:  # of two threads that read their first table, one compiles
        if context not in _loaded:
            try:
                _load(spark)
                _loaded[context] = True
            except (Py4JError, OSError) as error:
                _log.warning(
                    "ACID files are read by Spark's own reader, which takes longer: ours can't be"
                    " loaded into this session (%s)",
                    " ".join(str(error).split("\n\tat ")[0].split()),
                )
                _loaded[context] = False
        return _loaded[context]


def snapshot_files(spark: SparkSession, *arguments: Any) -> Any:
    """A new `SnapshotFiles`, whose constructor describes the arguments."""
    return java_class(spark, "acidplatform.SnapshotFiles")(*arguments)


def _load(spark: SparkSession) -> None:
    """Makes the classes known to the driver and to the executors. Raises Py4JError, OSError."""
    context: Any = spark.sparkContext
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    client = spark._jvm._gateway_client  # type: ignore[union-attr]
    if client not in _classes:
        _classes[client] = _compiled(spark, loader)
    classes = _classes[client]
    name = f"acidplatform-{hashlib.sha256(b''.join(classes.values())).hexdigest()[:16]}.jar"
    jar = Path(context._temp_dir, name)
    with zipfile.ZipFile(jar, "w") as archive:
        for path, code in sorted(classes.items()):
            archive.writestr(path, code)
    # `addURL` is public in Spark's class loader, and in no other.
    loader.addURL(java_class(spark, "java.io.File")(str(jar)).toURI().toURL())
    context._jsc.addJar(jar.as_uri())


def _compiled(spark: SparkSession, loader: Any) -> dict[str, bytes]:
    """The class files of our Java sources, by path in a jar. Raises Py4JError."""
    made = java_class(spark, "java.util.HashMap")()
    compiler = java_class(spark, "org.codehaus.janino.Compiler")()
    compiler.setIClassLoader(
        java_class(spark, "org.codehaus.janino.ClassLoaderIClassLoader")(loader)
    )
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setClassFileCreator(java_class(spark, f"{_RESOURCES}.MapResourceCreator")(made))
    sources = sorted(_SOURCES.glob("*.java"))
    gateway: Any = spark.sparkContext._gateway
    texts = gateway.new_array(java_class(spark, f"{_RESOURCES}.Resource"), len(sources))
    for place, source in enumerate(sources):
        text = java_class(spark, f"{_RESOURCES}.StringResource")(source.name, source.read_text())
        texts[place] = text
    compiler.compile(texts)
    return {str(path): bytes(made[path]) for path in made}
