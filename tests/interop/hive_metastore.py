"""A metastore of Hive 4.0.1 of its own on this machine, with Derby."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tarfile
import time
from pathlib import Path

from acid_platform import AcidError
from acid_platform.gateway.hive_client import Address, Hive
from tests.interop.hive import jars
from tests.interop.trino import Unavailable

VERSION = "4.0.1"
_SERVER = f"org.apache.hive:hive-standalone-metastore-server:{VERSION}:tar.gz:bin"
_COPY = ("mvn", "-q", "dependency:copy")
_OPENED = (
    *("lang", "lang.reflect", "util", "util.concurrent", "util.concurrent.atomic"),
    *("io", "net", "nio", "time"),
)
_SETTINGS = {
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "fs.defaultFS": "file:///",
    "metastore.server.min.threads": "4",
    "metastore.metadata.transformer.class": " ",
    "metastore.event.db.notification.api.auth": "false",
}


def _fetched(home: Path) -> Path:
    """The unpacked server; Maven fetches it once. Raises Unavailable."""
    unpacked = home / f"apache-hive-metastore-{VERSION}-bin"
    if not unpacked.exists():
        _fetch(home)
        archive = home / f"hive-standalone-metastore-server-{VERSION}-bin.tar.gz"
        with tarfile.open(archive) as packed:
            packed.extractall(home, filter="tar")
    return unpacked


def _fetch(home: Path) -> None:
    if shutil.which("mvn") is None:
        raise Unavailable(f"install Maven to fetch {_SERVER}")
    got = subprocess.run(
        [*_COPY, f"-Dartifact={_SERVER}", f"-DoutputDirectory={home}"],
        capture_output=True,
        text=True,
    )
    if got.returncode:
        raise Unavailable(f"Maven could not fetch {_SERVER}: {got.stdout[-400:]}")


class HiveMetastore:
    """A running metastore; `address` is where it answers."""

    def __init__(self, home: Path, work: Path) -> None:
        """Raises Unavailable."""
        java = shutil.which("java", path=os.environ.get("JAVA_HOME", "") + "/bin")
        java = java or shutil.which("java")
        if java is None:
            raise Unavailable("a metastore of Hive needs Java")
        # The server's archive has neither Hadoop nor all jars of others; those of Hive fit.
        server, lib = _fetched(home), jars(home, VERSION)
        work.mkdir(parents=True)
        settings = {
            **_SETTINGS,
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={work}/db;create=true",
            "metastore.warehouse.dir": f"file://{work}/warehouse",
            "metastore.warehouse.external.dir": f"file://{work}/external",
        }
        entries = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in settings.items()
        )
        (work / "metastore-site.xml").write_text(f"<configuration>{entries}</configuration>")
        command = [
            java,
            "-Xmx600m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dderby.stream.error.file={work}/derby.log",
            f"-DMETASTORE_HOME={server}",
            *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
            "-cp",
            f"{work}:{server}/lib/*:{lib}/*",
        ]
        environment = {
            **os.environ,
            "METASTORE_HOME": str(server),
            "METASTORE_CONF_DIR": str(work),
        }
        self.log = work / "metastore.log"
        tool = "org.apache.hadoop.hive.metastore.tools.schematool.MetastoreSchemaTool"
        with self.log.open("wb") as log:
            made = subprocess.run(
                [*command, tool, "-dbType", "derby", "-initSchema"],
                cwd=work,
                env=environment,
                stdout=log,
                stderr=log,
            )
        if made.returncode:
            raise Unavailable(f"Hive's schema can't be made: {self._tail()}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.address = Address("127.0.0.1", port)
        main = "org.apache.hadoop.hive.metastore.HiveMetaStore"
        self._process = subprocess.Popen(
            [*command, main, "-p", str(port)],
            cwd=work,
            env=environment,
            stdout=self.log.open("ab"),
            stderr=subprocess.STDOUT,
        )

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-1500:]

    def await_start(self, seconds: float = 90.0) -> None:
        """Raises Unavailable."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                with Hive(self.address) as hive:
                    hive.call("get_all_databases")
                return
            except AcidError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise Unavailable(f"Hive's metastore did not start: {self._tail()}") from None
            time.sleep(0.5)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
