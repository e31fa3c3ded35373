"""Sessions of Hive on this machine, with MapReduce in their own process."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.trino import Failed, Unavailable, java_home

VERSIONS = {"4.0.1": (17, 20), "4.2.0": (21, 99)}
"""Versions of Hive, with the oldest and the newest Java that runs it."""
_HERE = Path(__file__).parent
_LEFT_OUT = "hadoop-client-api,slf4j-reload4j,slf4j-log4j12"
"""Artifacts that are in other jars too, in other versions."""
_MEMORY = "1500m"
NO_ANSWER = "did not answer"
"""What is told of a statement that perhaps still goes on."""
_LONGEST = 300.0
"""Seconds that a statement may take."""
_JOB_FAILED = "from org.apache.hadoop.hive.ql.exec.mr.MapRedTask"
OPEN = (
    *(f"java.base/java.{name}" for name in ("lang", "util", "io", "net", "nio", "math", "text")),
    "java.base/java.time",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/java.util.regex",
    "java.base/java.lang.reflect",
    "java.base/java.lang.invoke",
    "java.sql/java.sql",
    "java.base/sun.nio.ch",
)
"""Packages that Hive opens by reflection."""

_CONFIGURATION = {
    "hive.metastore.warehouse.dir": "file://{warehouse}",
    "hive.metastore.warehouse.external.dir": "file://{warehouse}",
    "fs.defaultFS": "file:///",
    "hive.execution.engine": "mr",
    "mapreduce.framework.name": "local",
    "mapreduce.cluster.local.dir": "{work}/mapreduce",
    "hadoop.tmp.dir": "{work}/hadoop",
    "hive.exec.scratchdir": "file://{work}/scratch",
    "hive.exec.local.scratchdir": "{work}/local",
    "hive.downloaded.resources.dir": "{work}/resources",
    "hive.querylog.location": "{work}/queries",
    "hive.support.concurrency": "true",
    "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
    "hive.exec.dynamic.partition.mode": "nonstrict",
    "hive.exec.submit.local.task.via.child": "false",
    "hive.auto.convert.join": "false",
    "hive.fetch.task.conversion": "more",
    "hive.stats.autogather": "false",
    "hive.stats.column.autogather": "false",
    "hive.compute.query.using.stats": "false",
    "hive.security.authorization.enabled": "false",
    "hive.server2.materializedviews.registry.impl": "DUMMY",
    "hive.cli.print.header": "false",
    "hive.query.results.cache.enabled": "false",
    "hive.strict.managed.tables": "false",
    "hive.create.as.insert.only": "false",
    "hive.create.as.external.legacy": "false",
    "hive.notification.event.poll.interval": "0",
}


def jars(home: Path, version: str) -> Path:
    """The directory with the jars of this version; Maven fetches them once. Raises Unavailable."""
    place = home / f"hive-{version}"
    if (place / "lib" / f"hive-exec-{version}.jar").exists():
        return place / "lib"
    if shutil.which("mvn") is None:
        raise Unavailable(f"Hive {version}: install Maven, which fetches its jars")
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(_HERE / f"pom-{version}.xml", place / "pom.xml")
    got = subprocess.run(
        [
            *("mvn", "-q", "-B", "dependency:copy-dependencies"),
            f"-DoutputDirectory={place}/lib",
            f"-DexcludeArtifactIds={_LEFT_OUT}",
        ],
        cwd=place,
        capture_output=True,
        text=True,
    )
    if got.returncode:
        raise Unavailable(f"Maven could not fetch Hive {version}: {got.stdout[-400:]}")
    return place / "lib"


class Session:
    """A connection to a running Hive, with a database and settings of its own."""

    def __init__(self, port: int, log: Path) -> None:
        """`log`: where Hive tells why a job failed, which its answers do not. Raises Failed."""
        self._port, self._log = port, log
        self._logged = 0
        self._connect()

    def _connect(self) -> None:
        try:
            self._socket = socket.create_connection(("127.0.0.1", self._port), _LONGEST)
            self._lines = self._socket.makefile("r", encoding="utf-8", newline="\n")
        except OSError as error:
            raise Failed(f"Hive takes no session: {error}") from error
        self._answer()

    def sql(self, statement: str, **_: Any) -> list[str]:
        """The lines of a statement's answer, values with tabs between them. Raises Failed."""
        self._logged = self._log.stat().st_size
        try:
            self._socket.sendall(statement.replace("\n", " ").encode() + b"\n")
        except OSError as error:
            raise Failed(f"Hive ended: {error}") from error
        return self._answer()

    def _answer(self) -> list[str]:
        lines: list[str] = []
        while True:
            try:
                line = self._lines.readline()
            except TimeoutError as error:
                self.close()
                self._connect()
                raise Failed(f"Hive {NO_ANSWER} within {_LONGEST:.0f} s") from error
            if not line:
                raise Failed(f"Hive ended: {' '.join(lines)[-1000:]}")
            line = line.rstrip("\n")
            if line == "==ok":
                return lines
            if line == "==failed":
                told = " ".join(lines)[:3000]
                raise Failed(f"{told} {self._cause()}" if _JOB_FAILED in told else told)
            lines.append(line)

    def _cause(self) -> str:
        """The last cause in the log since the statement began, and where it was thrown."""
        with self._log.open(errors="replace") as log:
            log.seek(self._logged)
            lines = [line.strip() for line in log]
        found = [at for at, line in enumerate(lines) if line.startswith("Caused by: ")]
        return " ".join(lines[found[-1] : found[-1] + 2]) if found else ""

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class Hive:
    """A running Hive; `metastore` is the gateway's address, `warehouse` its root."""

    def __init__(
        self,
        home: Path,
        work: Path,
        version: str,
        metastore: tuple[str, int],
        warehouse: Path,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` are those of Hive that differ from the usual ones. Raises Unavailable."""
        lib, jdk = jars(home, version), java_home(*VERSIONS[version], f"Hive {version}")
        work.mkdir(parents=True)
        chosen = {
            name: value.format(work=work, warehouse=warehouse)
            for name, value in _CONFIGURATION.items()
        }
        chosen["hive.metastore.uris"] = "thrift://{}:{}".format(*metastore)
        chosen |= settings or {}
        properties = "\n".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in chosen.items()
        )
        (work / "hive-site.xml").write_text(f"<configuration>{properties}</configuration>")
        command = [
            str(jdk / "bin" / "java"),
            f"-Xmx{_MEMORY}",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            *(f"--add-opens={name}=ALL-UNNAMED" for name in OPEN),
            "-Duser.timezone=UTC",
            # The cause of a failed job is told as a warning.
            "-Dorg.apache.logging.log4j.level=WARN",
            f"-Djava.io.tmpdir={work}",
            "-cp",
            f"{work}:{lib}/*",
            str(_HERE / "Statements.java"),
        ]
        self.log = work / "hive.err"
        self._process = subprocess.Popen(
            command,
            cwd=work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("wb"),
            env={**os.environ, "HADOOP_USER_NAME": "root"},
            encoding="utf-8",
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline()
        try:
            if not port:
                raise Failed("no port")
            self._port = int(port)
            self._first = self.session()
        except Failed as error:
            self.stop()
            tail = self.log.read_text(errors="replace")[-1500:]
            raise Unavailable(f"Hive {version} did not start: {error} {tail}") from error

    def session(self) -> Session:
        """A further session. Raises Failed."""
        return Session(self._port, self.log)

    def sql(self, statement: str, **_: Any) -> list[str]:
        """As `Session.sql`, in a session that is always there."""
        return self._first.sql(statement)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
