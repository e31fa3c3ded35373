"""A Trino server of its own on this machine, with catalogs of the gateway and of Iceberg's REST."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.metastore.processes import free_port

VERSION = "476"
ARTIFACT = f"io.trino:trino-server:{VERSION}:tar.gz"
_OLDEST_JAVA = 24
_MEMORY = "2g"


class Unavailable(Exception):
    """This engine can't be had here; the text says why and what would help."""


class Failed(Exception):
    """Trino answered a statement with an error."""


def java_home(oldest: int, newest: int, engine: str) -> Path:
    """A JDK of one of these versions. Raises Unavailable."""
    places = [os.environ.get("INTEROP_JAVA_HOME", ""), *map(str, Path("/usr/lib/jvm").glob("*"))]
    for place in places:
        release = Path(place, "release")
        if place and release.exists():
            (line,) = [one for one in release.read_text().split("\n") if "JAVA_VERSION=" in one]
            if oldest <= int(line.split('"')[1].split(".")[0]) <= newest:
                return Path(place)
    raise Unavailable(f"{engine} needs a JDK {oldest} or newer: set INTEROP_JAVA_HOME")


def server_directory(home: Path) -> Path:
    """The unpacked server below `home`; Maven fetches it once. Raises Unavailable."""
    unpacked = home / f"trino-server-{VERSION}"
    if (unpacked / "plugin" / "iceberg").exists():
        return unpacked
    archive = home / f"trino-server-{VERSION}.tar.gz"
    if not archive.exists():
        if shutil.which("mvn") is None:
            raise Unavailable(f"put {archive.name} into {home}, or install Maven to fetch it")
        got = subprocess.run(
            ["mvn", "-q", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={home}"],
            capture_output=True,
            text=True,
        )
        if got.returncode:
            raise Unavailable(f"Maven could not fetch {ARTIFACT}: {got.stdout[-400:]}")
    with tarfile.open(archive) as packed:
        names = ("/plugin/hive", "/plugin/iceberg")
        wanted = (
            one
            for one in packed
            if "/plugin/" not in one.name or any(each in one.name for each in names)
        )
        packed.extractall(home, wanted, filter="tar")
    return unpacked


def _causes(error: Mapping[str, Any]) -> str:
    """What Trino tells of an error's causes, outermost first; empty if there are none."""
    told, cause = "", error.get("failureInfo", {}).get("cause")
    while cause:
        told += f"; caused by {cause.get('type')}: {cause.get('message')}"
        cause = cause.get("cause")
    return told


class Trino:
    """A running server; `catalogs` has the gateway's address of each catalog, `iceberg` that of a
    REST catalog."""

    def __init__(
        self,
        home: Path,
        work: Path,
        catalogs: Mapping[str, tuple[str, int]],
        iceberg: Mapping[str, str] | None = None,
    ) -> None:
        server, java = server_directory(home), java_home(_OLDEST_JAVA, 99, f"Trino {VERSION}")
        self.port = free_port()
        plugins = work / "plugin"
        (work / "catalog").mkdir(parents=True)
        plugins.mkdir()
        for name in ("hive", "iceberg"):
            (plugins / name).symlink_to(server / "plugin" / name)
        files = {
            "config.properties": "coordinator=true\nnode-scheduler.include-coordinator=true\n"
            f"http-server.http.port={self.port}\ndiscovery.uri=http://127.0.0.1:{self.port}\n"
            "query.max-memory=600MB\nquery.max-memory-per-node=500MB\n"
            "memory.heap-headroom-per-node=300MB\ntask.concurrency=2\ntask.max-worker-threads=4\n"
            "catalog.management=static\n",
            "node.properties": "node.environment=interop\n",
            "log.properties": "io.trino=WARN\n",
        }
        for name, (host, port) in catalogs.items():
            files[f"catalog/{name}.properties"] = (
                f"connector.name=hive\nhive.metastore=thrift\nhive.metastore.uri=thrift://{host}:"
                f"{port}\nfs.hadoop.enabled=true\nhive.security=allow-all\n"
                "hive.metastore-cache-ttl=0s\nhive.non-managed-table-writes-enabled=true\n"
                "hive.timestamp-precision=NANOSECONDS\nhive.hive-views.enabled=true\n"
                "hive.metastore.thrift.client.max-retries=2\n"
            )
        for name, address in (iceberg or {}).items():
            files[f"catalog/{name}.properties"] = (
                "connector.name=iceberg\niceberg.catalog.type=rest\n"
                f"iceberg.rest-catalog.uri={address}\nfs.hadoop.enabled=true\n"
            )
        for name, content in files.items():
            (work / name).write_text(content)
        command = [
            str(java / "bin" / "java"),
            f"-Xmx{_MEMORY}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+EnableDynamicAgentLoading",
            "-Djdk.attach.allowAttachSelf=true",
            "-Djdk.nio.maxCachedBufferSize=2000000",
            "-Dnode.environment=interop",
            f"-Dconfig={work}/config.properties",
            f"-Dnode.config={work}/node.properties",
            f"-Dlog.levels-file={work}/log.properties",
            f"-Dcatalog.config-dir={work}/catalog",
            "-Dnode.id=interop",
            f"-Dnode.data-dir={work}/data",
            f"-Dplugin.dir={plugins}",
            "-cp",
            f"{server}/lib/*",
            "io.trino.server.TrinoServer",
        ]
        self.log = work / "trino.log"
        self._process = subprocess.Popen(
            command,
            cwd=work,
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
            env={**os.environ, "HADOOP_USER_NAME": "root"},
        )

    def await_start(self, seconds: float = 240.0) -> None:
        """Waits until statements can be run on a node, which is later than the first answers.

        Raises Unavailable.
        """
        deadline = time.monotonic() + seconds
        while True:
            with suppress(OSError, Failed):
                nodes = self.sql("SELECT count(*) FROM system.runtime.nodes WHERE state = 'active'")
                if nodes == [[1]]:
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace")[-1500:]
                raise Unavailable(f"Trino did not start: {tail}")
            time.sleep(0.5)

    def sql(
        self, statement: str, catalog: str = "acid", schema: str = "db", user: str = "ann"
    ) -> list[list[Any]]:
        """The rows of a statement; their values as Trino's JSON has them. Raises Failed.

        A busy server loses sight of its only node for a moment, and then has run nothing.
        """
        deadline = time.monotonic() + 30
        while True:
            try:
                return self._sql(statement, catalog, schema, user)
            except Failed as error:
                if "nodes is empty" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(1)

    def _sql(self, statement: str, catalog: str, schema: str, user: str) -> list[list[Any]]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/statement",
            data=statement.encode(),
            headers={
                "X-Trino-User": user,
                "X-Trino-Catalog": catalog,
                "X-Trino-Schema": schema,
                "X-Trino-Time-Zone": "UTC",
                # Without it, timestamps are cut to milliseconds.
                "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",
            },
        )
        rows: list[list[Any]] = []
        while True:
            with urllib.request.urlopen(request, timeout=300) as reply:
                answer = json.load(reply)
            if "error" in answer:
                error = answer["error"]
                raise Failed(f"{error['errorName']}: {error['message']}{_causes(error)}")
            rows += answer.get("data", [])
            if "nextUri" not in answer:
                return rows
            request = urllib.request.Request(answer["nextUri"], headers={"X-Trino-User": user})

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
