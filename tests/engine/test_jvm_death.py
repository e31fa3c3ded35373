"""P60: a JVM, or a Connect server, that ends ends every call that waits for it, by one error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from acid_platform.engine.spark import failures, jvm
from acid_platform.errors import SparkLost, Transient
from tests.connect_server import ROOT, connect_server


class Client:
    """A client of Py4J, as far as a lost connection concerns it."""

    def __init__(self) -> None:
        self.connection: Any = ConnectionRefusedError("111")
        self.asked = 0

    def _get_connection(self) -> Any:
        self.asked += 1
        if isinstance(self.connection, Exception):
            raise self.connection
        return self.connection

    def _should_retry(self, retry: bool, connection: Any, failure: Any = None) -> bool:
        return retry and connection is not None and failure is not None


ENDS = {
    "killed": (["sleep", "60"], "killed by SIGKILL, as a system does without memory"),
    "full": ([sys.executable, "-c", "exit(3)"], "its heap of 2g was full"),
    "stopped": ([sys.executable, "-c", "exit(1)"], "its status was 1"),
    "unknown": ([], "nobody tells why"),
}


@pytest.mark.parametrize("end", ENDS)
def test_P60_whoever_loses_the_connection_to_a_jvm_that_ended_learns_why(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    command, why = ENDS[end]
    process = subprocess.Popen(command) if command else None
    client = Client()
    monkeypatch.setattr(
        SparkContext, "_gateway", SimpleNamespace(proc=process, _gateway_client=client)
    )
    monkeypatch.setattr(jvm, "_forget", lambda: None)
    if end == "killed":
        client.connection = object()
    jvm._watch_client(client, "2g")
    if end == "killed":
        assert client._get_connection() is client.connection
        monkeypatch.setattr(jvm, "SOON", 0.0)
        assert client._should_retry(True, object(), Py4JNetworkError("empty"))  # it is alive
        with failures.raise_as_ours():
            pass
        monkeypatch.undo()
        monkeypatch.setattr(
            SparkContext, "_gateway", SimpleNamespace(proc=process, _gateway_client=client)
        )
        monkeypatch.setattr(jvm, "_forget", lambda: None)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
    for call in (
        lambda: client._should_retry(False, object(), Py4JNetworkError("empty")),
        client._get_connection,
        client._get_connection,
    ):
        with pytest.raises(SparkLost, match=f"{why}.*ACID_SPARK_MEMORY.*engine='local'") as told:
            call()
        assert isinstance(told.value, Transient)
    assert client.asked <= 1  # nobody knocks at a door that is known to be closed
    with pytest.raises(SparkLost), failures.raise_as_ours():
        raise EOFError
    with pytest.raises(SparkLost), failures.raise_as_ours():
        pass  # the beginning of a result is no result


_ENDED = """
import json, os, signal, sys, threading, time
import pyarrow as pa
from acid_platform import SparkLost, Warehouse
end, path, pid, *waits = sys.argv[1:]
wh = Warehouse.open(path, engine="spark")
table = wh.create_table("db.t", "id bigint, v string")
table.insert([{"id": 1}])
text = "java_method('java.lang.Thread', 'sleep', CAST(id * 0 + 100 AS bigint))"
if end == "full":
    text = "array_join(collect_list(repeat(CAST(id AS string), 100000)), '')"
def stream():  # more rows than are held as a table
    for number in range(30):
        if number == 25:
            kill()
        yield pa.table({"id": [number] * 200_000})
calls = {
    "insert": lambda: table.insert(frame),
    "stream": lambda: table.insert(stream()),
    "merge": lambda: table.merge(frame, "t.id = s.id", when_not_matched_insert="*"),
    "collect": lambda: frame.collect(),
    "arrow": lambda: frame.toArrow(),
}
for name in waits:
    number = "7L" if end == "full" else "id"
    frame = wh.spark.range(100_000).selectExpr(f"{number} AS id", f"CAST({text} AS string) AS v")
    began, jvm = time.monotonic(), int(pid) or wh.spark._sc._gateway.proc.pid
    def kill():
        global began
        began = time.monotonic()
        os.kill(jvm, signal.SIGKILL)
    killer = threading.Timer(2, kill)
    if end != "full" and name != "stream":
        killer.start()
    try:
        calls[name]()
    except SparkLost as lost:
        print(json.dumps([name, time.monotonic() - began, str(lost)]))
    killer.cancel()
try:  # the frame is of a session that is gone, and the next session is another
    table.insert(frame)
except SparkLost:
    print(json.dumps(["frame", 0, ""]))
table.insert([{"id": 2}], engine="local")
assert end == "server" or table.insert([{"id": 3}]) == 1
print(json.dumps(["rows", 0, str(sorted(table.to_arrow()["id"].to_pylist()))]))
wh.metastore.stop()
"""


def _told(*arguments: str, **variables: str) -> list[tuple[str, float, str]]:
    done = subprocess.run(
        [sys.executable, "-c", _ENDED, *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("waits", "end", "why", "memory"),
    [
        (["insert", "arrow"], "killed", "it was killed by SIGKILL", "2g"),
        pytest.param(
            *(["merge", "collect", "stream"], "killed", "it was killed by SIGKILL", "2g"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(["insert"], "full", "its heap of 512m was full", "512m"), marks=pytest.mark.slow
        ),
    ],
    ids=["killed", "killed-others", "full"],
)
def test_P60_a_jvm_that_ends_ends_each_wait_and_the_next_statement_has_another(
    tmp_path: Path, waits: list[str], end: str, why: str, memory: str
) -> None:
    *lost, frame, rows = _told(end, str(tmp_path / "wh"), "0", *waits, ACID_SPARK_MEMORY=memory)
    assert [name for name, *_ in lost] == waits and frame[0] == "frame"
    for name, seconds, text in lost:
        assert why in text, name
        assert seconds < 10 or end == "full", name
    assert rows[2] == "[1, 2, 3]"


@pytest.mark.spark
@pytest.mark.slow
def test_P60_a_server_of_spark_connect_that_ends_ends_each_wait(tmp_path: Path) -> None:
    waits = ["insert", "insert", "collect", "merge"]  # it ends during the first
    with connect_server(tmp_path / "server.log") as (remote, server):
        told = _told(
            *("server", str(tmp_path / "wh"), str(server.pid), *waits), ACID_SPARK_REMOTE=remote
        )
    *lost, frame, rows = told
    assert [name for name, *_ in lost] == waits and frame[0] == "frame"
    for name, seconds, text in lost:
        assert "the Spark Connect server does not answer" in text, name
        assert seconds < 10, name
    assert rows[2] == "[1, 2]"
