"""`make lab-demo-cluster`: the demo with a Spark cluster and a warehouse in S3, all on one machine.

Starts a master, two workers and an S3 server as processes of their own, and ends them with the
demo. Every statement and compaction runs on the workers, which know nothing of this project but the
archive that the driver sends them. The exit code is 1 if a table is not what pandas computes.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from acid_platform import AcidError
from scripts import cluster, cluster_package, demo, s3_server

WORKERS = 2


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def variables(master: str, archive: Path, s3: str) -> dict[str, str]:
    """What a user would export to use the cluster and the store."""
    return {
        **s3_server.variables(s3),
        "ACID_SPARK_MASTER": master,
        "ACID_SPARK_ARCHIVE": str(archive),
        "ACID_SPARK_PACKAGES": "s3",
        "ACID_ENGINE": "spark",  # otherwise the local engine does what is small: almost everything
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def end_session() -> None:
    """Ends this process's Spark session, if there is one, before its cluster ends."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, or 1 if a table is wrong or a process does not start."""
    parser = argparse.ArgumentParser(prog="python -m scripts.demo_cluster", description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("var/demo-cluster"))
    parser.add_argument("--weeks", type=int, default=12, help="how many of the year's 53 to load")
    options = parser.parse_args(arguments)
    home: Path = options.home.absolute()
    for name in ("ACID_SPARK_REMOTE", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        os.environ.pop(name, None)
    try:
        archive = home / "acid-environment.tar.gz"
        cluster_package.make(archive)
        with (
            tempfile.TemporaryDirectory(prefix="acid-cluster-") as directory,
            cluster.running(Path(directory), free_port(), WORKERS) as spark,
            s3_server.running() as s3,
        ):
            os.environ.update(variables(spark.url, archive, s3))
            warehouse = f"s3://{s3_server.BUCKET}/demo"
            print(f"{spark.url} with {WORKERS} workers; {warehouse} at {s3}", flush=True)
            words = ["--home", str(home), "--warehouse", warehouse]
            try:
                return demo.main([*words, "--weeks", str(options.weeks)])
            finally:
                end_session()
    except (AcidError, RuntimeError) as error:
        print(f"demo-cluster: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
