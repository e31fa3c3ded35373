"""`make lab-spark-connect`: a Spark Connect server with the platform's settings, in the foreground.

Runs, notebooks and the command line use it when ACID_SPARK_REMOTE names it; they start no JVM of
their own then. Its Python workers run this interpreter, so that compactions find acid_platform.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from acid_platform import AcidError
from acid_platform.engine.spark import session
from acid_platform.engine.spark.jvm import executor_variables

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
ROOT = Path(__file__).resolve().parent.parent


def command(master: str, memory: str, address: str, port: int) -> list[str]:
    """The spark-submit call that becomes the server."""
    import pyspark

    settings = {
        **session.spark_config(master, memory),
        "spark.app.name": "acid-platform-connect",
        "spark.connect.grpc.binding.address": address,
        "spark.connect.grpc.binding.port": str(port),
    }
    submit = Path(pyspark.__path__[0], "bin", "spark-submit")
    # A command line can be seen by others: keys of a store stay out of it.
    unseen = executor_variables().keys() - executor_variables(keys=False).keys()
    pairs = [
        f"{name}={value}"
        for name, value in settings.items()
        if name != "spark.master" and name not in unseen
    ]
    return [
        str(submit),
        "--class",
        SERVER,
        "--master",
        master,
        *(word for pair in pairs for word in ("--conf", pair)),
        "spark-internal",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Becomes the server; answers 1 if there is no Java for it."""
    parser = argparse.ArgumentParser(prog="python -m scripts.spark_connect", description=__doc__)
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        help="it has no access control of its own: whoever reaches it runs code as you",
    )
    parser.add_argument("--port", type=int, default=15002)
    options = parser.parse_args(arguments)
    master = session.spark_master()
    session.prepare_environment(master)
    try:
        session.require_java()
    except AcidError as error:
        print(f"spark-connect: {error}", file=sys.stderr)
        return 1
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ.pop("ACID_SPARK_REMOTE", None)
    words = command(
        master,
        os.environ.get("ACID_SPARK_MEMORY") or "2g",
        options.address,
        options.port,
    )
    print(
        f"Spark Connect server: export ACID_SPARK_REMOTE=sc://{options.address}:{options.port};"
        " Ctrl-C ends it",
        flush=True,
    )
    os.execv(words[0], words)


if __name__ == "__main__":
    sys.exit(main())
