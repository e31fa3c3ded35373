"""`make lab-bench NAME=… ARGS="…"`: runs one of the benchmarks, or lists them."""

from __future__ import annotations

import os
import sys
from importlib import import_module

BENCHMARKS: dict[str, tuple[str, str]] = {
    "metastore": ("metastore", "the metastore compared with SQLite and PostgreSQL"),
    "transports": ("transports", "the metastore over its socket, TCP and TLS, and archiving"),
    "initiator": ("initiator", "an Initiator's cycle over 10,000 tables with 1,000,000 deltas"),
    "branches": ("branches", "1,000 branches of 10,000 tables: made, written, merged, dropped"),
    "planning": ("planning", "a read and a commit of up to 10,000 deltas, 100,000 partitions"),
    "read": ("reading", "reads compared with plain ORC, by the published steps"),
    "write": ("writing", "INSERT compared with plain ORC; UPDATE, DELETE, MERGE with a rewrite"),
    "durability": ("durability", "what the syncs of a commit cost: INSERT with and without them"),
    "compaction": ("compaction", "major and minor compaction compared with a plain rewrite"),
    "memory": ("statements", "every statement on 30 million rows with a 1 GB heap: peak memory"),
    "codecs": ("codecs", "what the codecs of ORC files cost: loads, scans, size on disk"),
    "local": ("local.__main__", "the local engine beside delta-rs, DuckLake, Spark, plain ORC"),
    "local-growth": ("local_growth", "the local engine as a table grows: seconds, peak memory"),
    "local-profile": ("local.profile", "where the time of the local engine's statements goes"),
    "tpc": ("tpc.measure", "TPC-H and TPC-DS without a JVM, beside DuckDB and Spark on Parquet"),
    "tpc-parquet": (
        "tpc.beside",
        "TPC on Parquet, beside DuckDB on plain files and DuckLake",
    ),
    "peers": ("peers.__main__", "our tables beside Iceberg, Delta, Hudi, plain files in Spark"),
    "profile": ("profile.__main__", "where a statement's time goes, in our tables and in others"),
    "launch": ("launching", "from the click to the materialization"),
    "platform-day": ("platform_day", "a day of ten small assets: JVMs started, seconds"),
}
"""By name the module, and what it measures."""
_MEMORY = {"read": "3g", "write": "3g", "durability": "3g", "compaction": "1g", "memory": "1g"}
_MEMORY["codecs"] = "4g"
"""The memory of Spark's JVM; what fits its default is left out."""


def main(words: list[str]) -> int:
    if not words or words[0] not in BENCHMARKS:
        for name, (_, about) in BENCHMARKS.items():
            print(f"  {name:14s} {about}")
        return 1 if words else 0
    name, *given = words
    if name in _MEMORY:
        os.environ["ACID_SPARK_MEMORY"] = _MEMORY[name]
    sys.argv = [f"make lab-bench NAME={name}", *given]  # for the usage that argparse prints
    return int(import_module(f"benchmarks.{BENCHMARKS[name][0]}").main() or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
