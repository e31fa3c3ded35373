"""`make lab-cluster`: a Spark cluster on this machine, a master and workers as own processes.

Workers have one core and a working directory each, and know nothing of this project: executors get
its code as an archive. What runs here runs on the machines of a real cluster, if they see the
warehouse's directory or object store.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from acid_platform import AcidError
from acid_platform.engine.spark.session import executor_python, require_java

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_SECONDS = 60
"""For the master and its workers to start."""


class LocalCluster:
    """The processes of a cluster. A context manager: they end with the block."""

    def __init__(self, directory: Path, port: int, memory: str = "1500m") -> None:
        """`memory`: what each worker offers to executors."""
        self.url = f"spark://127.0.0.1:{port}"
        self.workers: list[subprocess.Popen[bytes]] = []
        self._directory, self._port, self._memory = directory, port, memory
        self._master: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LocalCluster:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._master = self._start(
            "master",
            [_MASTER, "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"],
        )
        self._wait_for("master", "I have been elected leader")
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, *filter(None, [self._master])):
            _end(process)

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Starts another worker; returns its process when the master knows it."""
        name = f"worker-{len(self.workers)}"
        home = self._directory / f"{name}-work"
        home.mkdir()
        words = [_WORKER, "--host", "127.0.0.1", "--cores", "1", "--memory", self._memory]
        process = self._start(
            name, [*words, "--work-dir", str(home), "--webui-port", "0", self.url]
        )
        self.workers.append(process)
        self._wait_for(name, "Successfully registered with master")
        return process

    def _start(self, name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__path__[0])
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(home / "bin" / "spark-class"), *words],
                cwd=self._directory,
                env=_environment(home),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_for(self, name: str, text: str) -> None:
        log = self._directory / f"{name}.log"
        until = time.monotonic() + _SECONDS
        while text not in log.read_text(errors="replace"):
            if time.monotonic() > until:
                raise RuntimeError(f"Spark's {name} did not start in {_SECONDS} s: see {log}")
            time.sleep(0.1)


def _environment(spark_home: Path) -> dict[str, str]:
    """Of a machine that has Java, Spark and Python, and not this project."""
    python = shutil.which(executor_python(), path=f"{sys.base_prefix}/bin:{os.defpath}")
    if python is None:
        raise RuntimeError(f"there is no {executor_python()} for the executors")
    java = Path(require_java()).resolve().parent
    return {
        "PATH": os.pathsep.join([str(java), str(Path(python).parent), os.defpath]),
        "JAVA_HOME": str(java.parent),
        "HOME": os.environ.get("HOME", "/"),
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=true",
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a master, or a worker with its executors: they are a session of processes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def running(directory: Path, port: int, workers: int) -> Iterator[LocalCluster]:
    """A cluster with so many workers."""
    with LocalCluster(directory, port) as cluster:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until it is interrupted; answers 1 if the cluster does not start."""
    parser = argparse.ArgumentParser(prog="python -m scripts.cluster", description=__doc__)
    parser.add_argument("--port", type=int, default=7077)
    parser.add_argument("--workers", type=int, default=2, help="each has one core")
    options = parser.parse_args(arguments)
    # A script that starts it in the background can't interrupt it, and its workers must end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="acid-cluster-") as directory:
        try:
            with running(Path(directory), options.port, options.workers) as cluster:
                print(
                    f"{options.workers} workers, their logs in {directory}; Ctrl-C ends them\n"
                    f"export ACID_SPARK_MASTER={cluster.url}",
                    flush=True,
                )
                signal.pause()
        except (AcidError, RuntimeError) as error:
            print(f"cluster: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
