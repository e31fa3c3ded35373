"""Records what an engine and the gateway say to each other, and plays it back without the engine.

A recording is a list of steps. A step is a statement of this platform (`ours`), or a statement of
the engine (`sql`) with its calls. A call has its arguments, its answer or error, and the files that
the engine had written since the call before.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.thrift import TType
from thriftpy2.transport import TMemoryBuffer

from acid_platform.gateway import protocol as shapes
from acid_platform.gateway.protocol import Call, load

ROOT = "{root}"
"""Stands for the warehouse's directory."""
_REPLY = 2
_TIMES = frozenset({"createTime", "transient_lastDdlTime", "startedTime", "lastHeartbeatTime"})
_TXNS = frozenset(
    {
        "txn_ids",
        "txnid",
        "txnId",
        "txnIds",
        "min",
        "max",
        "txn_high_water_mark",
        "open_txns",
        "min_open_txn",
        "validTxnList",
    }
)
"""Fields with ids of transactions; all are moved by one number when they are played."""
_LOCKS = frozenset({"lockid"})
_LONGEST = 2**63 - 1


# --- structs and plain values -------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A struct as JSON's types, without fields that are not set."""
    if hasattr(value, "thrift_spec"):
        named = {field[1]: getattr(value, field[1]) for field in value.thrift_spec.values()}
        return {name: plain(one) for name, one in named.items() if one is not None}
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, set | frozenset):
        return sorted(plain(one) for one in value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in sorted(value.items())}
    return value


def built(kind: int, spec: Any, given: Any) -> Any:
    """The inverse of `plain` for a field of this type."""
    if given is None:
        return None
    if kind == TType.STRUCT:
        fields = {field[1]: field for field in spec.thrift_spec.values()}
        made = {name: _field(fields[name], one) for name, one in given.items()}
        return spec(**made)
    if isinstance(given, dict) and set(given) == {"base64"}:
        return base64.b64decode(given["base64"])
    if kind in (TType.LIST, TType.SET):
        inner = spec if isinstance(spec, tuple) else (spec, None)
        values = [built(*inner, one) for one in given]
        return set(values) if kind == TType.SET else values
    if kind == TType.MAP:
        keys, values_of = (one if isinstance(one, tuple) else (one, None) for one in spec)
        return {built(*keys, name): built(*values_of, one) for name, one in given.items()}
    return int(given) if kind in (TType.I16, TType.I32, TType.I64) else given


def _field(field: tuple[Any, ...], given: Any) -> Any:
    kind, spec = field[0], field[2]
    return built(kind, spec if len(field) == 4 else None, given)


def arguments_of(name: str, given: list[Any]) -> list[Any]:
    """The arguments of a call, from what was recorded."""
    spec = getattr(load().ThriftHiveMetastore, f"{name}_args").thrift_spec
    fields = [spec[number] for number in sorted(spec)]
    return [_field(field, one) for field, one in zip(fields, given, strict=True)]


def answer_of(name: str, payload: bytes) -> Any:
    """The answer as JSON's types; an error is `{"raised": its name, "message": …}`."""
    protocol = TBinaryProtocol(TMemoryBuffer(payload))
    _, kind, _ = protocol.read_message_begin()
    if kind != _REPLY:
        from thriftpy2.thrift import TApplicationException

        failure = TApplicationException()
        failure.read(protocol)
        return {"raised": "TApplicationException", "message": failure.message}
    result = getattr(load().ThriftHiveMetastore, f"{name}_result")()
    result.read(protocol)
    for number, field in result.thrift_spec.items():
        value = getattr(result, field[1])
        if number and value is not None:
            return raised(value)
    return plain(getattr(result, "success", None))


def raised(error: Exception) -> dict[str, str]:
    return {"raised": type(error).__name__, "message": str(getattr(error, "message", error))}


# --- recording ----------------------------------------------------------------------------------


class Recording:
    """What is said about one warehouse, from its first moment on."""

    def __init__(self, root: Path) -> None:
        self.steps: list[dict[str, Any]] = []
        self._root = root
        self._known: set[Path] = set()
        self._mutex = threading.Lock()

    def ours(self, statement: str) -> None:
        """A statement that this platform has run."""
        self.steps.append({"ours": statement})
        self._news()

    def begin(self, statement: str) -> None:
        """The next calls belong to this statement of the engine."""
        self._news()
        self.steps.append({"sql": statement, "calls": []})

    def end(self, outcome: str, rows: Mapping[str, Any]) -> None:
        """`rows`: the rows of each table after the statement."""
        self.steps[-1]["outcome"] = outcome
        self.steps[-1]["rows"] = rows
        self._news()

    def heard(self, payload: bytes) -> None:
        """A call that is about to be answered."""
        call = Call.decode(payload)
        with self._mutex:
            entry = {"call": call.name, "arguments": plain(call.arguments)}
            files = self._news()
            if files:
                entry["files"] = files
            self.steps[-1]["calls"].append(_relative(entry, self._root))

    def said(self, payload: bytes, answer: bytes) -> None:
        call = Call.decode(payload)
        arguments = _relative(plain(call.arguments), self._root)
        told = _relative(answer_of(call.name, answer), self._root)
        with self._mutex:
            for entry in reversed(self.steps[-1]["calls"]):
                same = (entry["call"], entry["arguments"]) == (call.name, arguments)
                if same and "answer" not in entry:
                    entry["answer"] = told
                    return

    def _news(self) -> dict[str, str | None]:
        """Files and directories that were not there at the call before."""
        found: dict[str, str | None] = {}
        for place in sorted(self._root.rglob("*.db/**/*")):
            name = place.relative_to(self._root)
            if place in self._known or any(part.startswith(".") for part in name.parts):
                continue
            self._known.add(place)
            content = base64.b64encode(place.read_bytes()).decode() if place.is_file() else None
            found[str(name)] = content
        return found

    def write(self, path: Path, engine: str) -> None:
        lines = [json.dumps({"engine": engine}), *(json.dumps(step) for step in self.steps)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _relative(value: Any, root: Path) -> Any:
    """Without the names of this machine and its directories."""
    text = json.dumps(value)
    text = re.sub(r'"hostname": "[^"]*"', '"hostname": "client"', text)
    return json.loads(text.replace(f"file://{root}", ROOT).replace(f"file:{root}", ROOT))


# --- playing ------------------------------------------------------------------------------------


class Player:
    """Plays a recording's calls to a gateway, and tells where its answers differ."""

    def __init__(self, client: Any, root: Path) -> None:
        self._client, self._root = client, root
        self._txns = self._locks = 0
        self._declarations: dict[str, str] = {}
        self.differ: list[str] = []

    def play(self, step: Mapping[str, Any]) -> None:
        """The calls of one statement."""
        for entry in step["calls"]:
            for name, content in entry.get("files", {}).items():
                self._write(self._root / name, content)
            self._call(step["sql"], entry)

    def _write(self, place: Path, content: str | None) -> None:
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(base64.b64decode(content))

    def _call(self, statement: str, entry: Mapping[str, Any]) -> None:
        name, expected = entry["call"], entry.get("answer")
        given = arguments_of(name, self._moved(entry["arguments"]))
        try:
            answer = plain(getattr(self._client, name)(*given))
        except Exception as error:
            answer = raised(error)
            if answer["message"].endswith("missing result"):
                answer = None  # how the client reports an answer that is null
        answer = _relative(answer, self._root)
        self._learn(name, expected, answer)
        wanted = json.loads(json.dumps(self._moved(expected)).replace(f"file://{self._root}", ROOT))
        if _timeless(wanted) != _timeless(answer):
            self.differ.append(f"{statement}: {name} answered {answer}, recorded was {wanted}")

    def _learn(self, name: str, expected: Any, answer: Any) -> None:
        """Ids of transactions, locks and declarations may be others than those recorded."""
        if name == "open_txns" and "raised" not in answer:
            self._txns = answer["txn_ids"][0] - expected["txn_ids"][0]
        if name == "lock" and "raised" not in answer:
            self._locks = answer["lockid"] - expected["lockid"]
        pair = [_declarations(one) for one in (expected, answer)]
        self._declarations |= dict(zip(*pair, strict=False))

    def _moved(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._moved(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self._moved(one, field) for one in value]
        if isinstance(value, str):
            if field == shapes.VERSION:
                return self._declarations.get(value, value)
            if field == "validTxnList":
                return re.sub(r"\d+", lambda one: str(self._txn(int(one[0]))), value)
            return value.replace(ROOT, f"file://{self._root}")
        if isinstance(value, int) and not isinstance(value, bool):
            if field in _TXNS:
                return self._txn(value)
            if field in _LOCKS:
                return value + self._locks
        return value

    def _txn(self, number: int) -> int:
        return number if number in (0, _LONGEST) else number + self._txns


def _declarations(value: Any) -> list[str]:
    """The declarations named in an answer, in their order."""
    if isinstance(value, dict):
        own = [value[shapes.VERSION]] if isinstance(value.get(shapes.VERSION), str) else []
        return own + [one for inner in value.values() for one in _declarations(inner)]
    if isinstance(value, list):
        return [one for inner in value for one in _declarations(inner)]
    return []


def _timeless(value: Any) -> Any:
    """Without times, which differ each time, and numbers of transactions in errors."""
    if isinstance(value, dict):
        if "raised" in value:
            return value["raised"]
        return {name: "" if name in _TIMES else _timeless(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_timeless(one) for one in value]
    return value
