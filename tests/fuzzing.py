"""Wrong bytes for real processes of metastore and gateway, before and after the handshake.

`python -m tests.fuzzing --minutes 60 --seed 7` sends them for an hour and prints counts as JSON.
The exit code is 1 if a process ended, did not serve an honest client in between, or did not come
back with the same tables. Tests run a few rounds of it with a fixed seed.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from acid_platform import Warehouse
from acid_platform.metastore import endpoint, wire
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.messages import OPERATIONS
from tests.declared import declare
from tests.gateway.calls import any_call
from tests.metastore.processes import free_port

KEY = "fuzzing-0123456789abcdef"
_ENDS = {"stop"}
"""Operations that rightly end the process."""

JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e308, 2**31, 2**63, 2**64, -(2**63), 10**400, float("nan"),
    float("inf"), "", "x", "\ud800", "\udfff\ud83d", "\x00", "a\nb\x1b[2J", "x" * 70_000, "é\u202e",
    "s", "99999999999999999999:1:2", "db.t:9:8:7::", [], [[]], {}, {"x": {}}, [None], ["\ud800"],
    [1] * 3, {"a": "\udc00"},
)  # fmt: skip


def junk(dice: random.Random) -> Any:
    """A value that nobody expects."""
    return copy.deepcopy(dice.choice(JUNK))


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def garbled(dice: random.Random, content: bytes) -> bytes:
    """The bytes with a few changes."""
    changed = bytearray(content)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(changed) + 1)
        match dice.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] = dice.randrange(256)
            case 1:
                del changed[at : at + dice.randint(1, 8)]
            case 2:
                changed[at:at] = dice.randbytes(dice.randint(1, 8))
            case 3:
                changed[at:at] = dice.choice(
                    (b'"\\ud800"', b"\xff", b"\x00", b"{", b"[" * 500, b"1" * 400, b"NaN", b'\\"')
                )
            case 4:
                changed[at : at + 4] = struct.pack(
                    "!i", dice.choice((-1, 0, 1, 1 << 20, 1 << 31 - 1))
                )
            case _:
                changed += changed[: dice.randint(1, 64)]
    return bytes(changed)


def sample(hint: Any, dice: random.Random) -> Any:
    """A value of a field's type, as JSON."""
    choices = [one for one in get_args(hint) if one not in (NoneType, Ellipsis)]
    if hint is int:
        return dice.choice((0, 1, 2, 7, 10**6))
    if hint is str:
        return dice.choice(("db.t", "db", "p=1", "x", "t", "1:1:1::"))
    if hint is bool:
        return dice.random() < 0.5
    if hint is float:
        return dice.choice((0.0, 0.01))
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return {name: sample(kind, dice) for name, kind in get_type_hints(hint).items()}
    if isinstance(hint, type) and hasattr(hint, "__members__"):
        return dice.choice([one.value for one in hint])  # type: ignore[attr-defined]
    origin = getattr(hint, "__origin__", None)
    if origin is dict:
        return {"db.t": sample(choices[-1], dice)}
    if origin in (tuple, list):
        return [sample(choices[0], dice) for _ in range(dice.randint(0, 2))]
    return sample(choices[0], dice) if choices else "x"


def request(dice: random.Random) -> bytes:
    """A request for some operation, of which something may be wrong."""
    op = dice.choice([name for name in OPERATIONS if name not in _ENDS])
    kind = OPERATIONS[op]
    hints = get_type_hints(kind)
    args = {one.name: sample(hints[one.name], dice) for one in fields(kind)}  # type: ignore[arg-type]
    for name in args:
        if dice.random() < 0.3:
            args[name] = junk(dice)
        if isinstance(args[name], list) and args[name] and dice.random() < 0.3:
            args[name][0] = junk(dice)
    if dice.random() < 0.1:
        args[dice.choice(("x", "txn", "name"))] = nested(
            dice.choice((5, 100, 900, 5000)) if sys.getrecursionlimit() > 6000 else 300
        )
    said: dict[str, Any] = {"id": f"{dice.randrange(1 << 60):x}", "op": op, "args": args}
    if dice.random() < 0.1:
        said[dice.choice(("id", "op", "args"))] = junk(dice)
    text = json.dumps(said).encode()
    return garbled(dice, text) if dice.random() < 0.12 else text


def opening(dice: random.Random) -> bytes:
    """What a stranger sends to a metastore."""
    digest = f"{dice.randrange(1 << 255):064x}"
    said = dice.choice((
        b'{"acid":1,"proof":"\\ud800"}', b'{"acid":1,"challenge":"\\ud800"}',
        b'{"acid":"\\ud800","refused":1}', b'{"refused": "x\\ny"}', b'{"acid": 6, "challenge": 1}',
        b"[" * 500, b'{"acid": ' + b"9" * 400 + b"}", b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n",
        wire.greeting(digest, digest), wire.greeting(digest, digest, "primary", 2**70),
        json.dumps({"acid": junk(dice), "challenge": junk(dice),
                    "proof": junk(dice)}).encode()[:500],
    ))  # fmt: skip
    if dice.random() < 0.4:
        said = garbled(dice, said)
    if dice.random() < 0.2:
        return said  # no frame
    size = len(said) if dice.random() < 0.9 else dice.choice((0, 511, 513, 2**31, 2**32 - 1))
    return struct.pack("!I", size) + said


class Fault(Exception):
    """A process ended, or does not serve."""


class Process:
    """A process with its log; ends with the block."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self._command, self._log, self._environment = command, log, environment
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env={**os.environ, **self._environment}
            )

    def require_alive(self) -> None:
        if self.process.poll() is not None:
            tail = self._log.read_text(errors="replace")[-3000:]
            raise Fault(f"{self._command} ended with {self.process.returncode}: {tail}")

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def end(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        code = self.process.wait(300)
        if how == signal.SIGTERM and code != 0:
            raise Fault(f"{self._command} ended with {code} after SIGTERM")


def connect(port: int) -> socket.socket:
    deadline = time.monotonic() + 300
    while True:
        try:
            made = socket.create_connection(("127.0.0.1", port), 5)
            made.settimeout(5)
            return made
        except OSError:
            if time.monotonic() > deadline:
                raise Fault(f"nothing listens on port {port}") from None
            time.sleep(0.05)


class MetastoreTarget:
    """A metastore on TCP, with TLS or without."""

    name = "metastore"

    def __init__(self, base: Path, tls: bool) -> None:
        self.told: Counter[str] = Counter()
        self._home, self._port = base / "metastore", free_port()
        environment = {endpoint.KEY: KEY}
        self._context: ssl.SSLContext | None = None
        self._connect_environment = dict(environment)
        if tls:
            from acid_platform.metastore.certificates import make_certificate

            self._home.mkdir(parents=True, mode=0o700)
            make_certificate(self._home / "tls", ["127.0.0.1"])
            ca = str(self._home / "tls" / "ca.pem")
            self._context = ssl.create_default_context(cafile=ca)
            self._connect_environment[endpoint.TLS_CA] = ca
            self.name += " with TLS"
        command = [sys.executable, "-P", "-m", "acid_platform.metastore", "--dir", str(self._home)]
        self._process = Process(
            [*command, "--listen", f"127.0.0.1:{self._port}"], base / "log", environment
        )
        connect(self._port).close()
        with self._honest() as client:
            client.create_database("db", if_not_exists=True)
            declare(client, "db.t", "/nowhere/db.t", [("id", "int")], [("p", "int")])

    def _honest(self) -> Metastore:
        os.environ.pop(endpoint.TLS_CA, None)
        os.environ.update(self._connect_environment)
        return Metastore.connect(f"tcp://127.0.0.1:{self._port}", autostart=False)

    def _raw(self) -> socket.socket:
        return connect(self._port)

    def strange(self, dice: random.Random) -> None:
        """What somebody without the key sends."""
        with suppress(OSError), self._raw() as peer:
            if self._context is not None and dice.random() < 0.6:
                secured = self._context.wrap_socket(peer, server_hostname="127.0.0.1")
                peer = secured
            for _ in range(dice.randint(1, 3)):
                peer.sendall(opening(dice))
            peer.settimeout(0.02)
            with suppress(OSError):
                peer.recv(4096)
        self.told["strange connections"] += 1

    def known(self, dice: random.Random) -> None:
        """What a faulty client with the key sends."""
        peer = self._raw()
        if self._context is not None:
            peer = self._context.wrap_socket(peer, server_hostname="127.0.0.1")
        with suppress(OSError, EOFError, wire.Malformed):
            channel = wire.Channel(peer, KEY.encode())
            for _ in range(40):
                self.told["requests"] += 1
                answer = json.loads(channel.exchange(request(dice), 0.5))
                self.told["answers" if "value" in answer else "refusals"] += 1
        peer.close()

    def check(self) -> None:
        """Raises Fault."""
        self._process.require_alive()
        with self._honest() as client:
            client.begin().commit()
        self.told["checks"] += 1

    def restart(self, how: int) -> None:
        """Ends and starts the process: its files must hold what it said. Raises Fault."""
        before = self._seen()
        self._process.require_alive()
        self._process.end(how)
        self._process.start()
        after = self._seen()
        if before != after:
            raise Fault(f"{self.name}: after a restart {after} instead of {before}")
        self.told["restarts"] += 1

    def _seen(self) -> object:
        connect(self._port).close()
        self._process.require_alive()
        with self._honest() as client:
            return (
                sorted(map(repr, client.tables())),
                client.databases(),
                sorted(map(repr, client.settings().items())),
            )

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.require_alive()
        self._process.end()


class GatewayTarget:
    """A gateway, of which everybody has to log in, or nobody."""

    def __init__(self, base: Path, login: bool) -> None:
        self.told: Counter[str] = Counter()
        self.name = "gateway with login" if login else "gateway"
        self._login = login
        self._port, where = free_port(), str(base / "wh")
        environment = {"ACID_WAREHOUSE": where}
        for name in ("ACID_METASTORE", endpoint.KEY, endpoint.TLS_CA):
            os.environ.pop(name, None)
        acid = [sys.executable, "-P", "-m", "acid_platform"]
        with Warehouse.open(where, engine="local") as warehouse:
            warehouse.create_table("db.t", "id int", partitioned_by=["p int"])
        command = [*acid, "gateway", "--listen", f"127.0.0.1:{self._port}"]
        if login:
            from acid_platform.gateway.logins import add

            add(str(base / "users"), "ann", "secret")
            command += ["--users", str(base / "users")]
        self._process = Process(command, base / "log", environment)
        self._warehouse = where
        connect(self._port).close()

    def strange(self, dice: random.Random) -> None:
        from acid_platform.gateway import framing

        said = dice.choice((
            framing.client_opening("ann", "wrong"), framing.client_opening("a\nb\x1b", "x"),
            framing.written(framing.SaslStatus.START, b"PLAIN\n"),
            b"\x16\x03\x01\x02\x00", b"GET / HTTP\r\n",
            struct.pack("!I", dice.choice((0, 5, 2**31, 2**32 - 1))) + b"\x80\x01",
            any_call(dice), any_call(dice), any_call(dice),
        ))  # fmt: skip
        if dice.random() < 0.6:
            said = garbled(dice, said)
        with suppress(OSError), connect(self._port) as peer:
            peer.sendall(said)
            peer.settimeout(0.02)
            peer.recv(4096)
        self.told["strange connections"] += 1

    def known(self, dice: random.Random) -> None:
        from acid_platform.gateway import framing

        with suppress(OSError), connect(self._port) as peer:
            if self._login:
                peer.sendall(framing.client_opening("ann", "secret"))
                if peer.recv(100) != framing.written(framing.SaslStatus.COMPLETE):
                    self.told["logins that wait for a minute"] += 1
                    return
            peer.settimeout(0.5)
            for _ in range(40):
                call = any_call(dice)
                if dice.random() < 0.3:
                    call = garbled(dice, call)
                peer.sendall(struct.pack("!I", len(call)) + call)
                self.told["calls"] += 1
                if not peer.recv(1 << 20):
                    return
                self.told["answers"] += 1

    def check(self) -> None:
        from tests.gateway.clients import connected

        self._process.require_alive()
        if not self._login:
            with connected(("127.0.0.1", self._port)) as client:
                if "default" not in client.get_all_databases():
                    raise Fault(f"{self.name} forgets databases")
        self.told["checks"] += 1

    def restart(self, how: int) -> None:
        self._process.require_alive()
        self._process.end(how)
        self._process.start()
        connect(self._port).close()
        self.told["restarts"] += 1

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.require_alive()
        self._process.end()
        with Metastore.connect(f"{self._warehouse}/_metastore", autostart=False) as metastore:
            metastore.stop()


Target = MetastoreTarget | GatewayTarget


def makers() -> list[Callable[[Path], Target]]:
    return [
        lambda base: MetastoreTarget(base, tls=False),
        lambda base: MetastoreTarget(base, tls=True),
        lambda base: GatewayTarget(base, login=False),
        lambda base: GatewayTarget(base, login=True),
    ]


def fuzz(target: Target, dice: random.Random, rounds: int) -> None:
    """So many connections of strangers, and of clients that know the key or the password."""
    for _ in range(rounds):
        target.strange(dice)
        if dice.random() < 0.3:
            target.known(dice)
    target.check()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    dice = random.Random(chosen.seed)
    base = Path(tempfile.mkdtemp())
    targets: list[Target] = []
    end, faults = time.monotonic() + 60 * chosen.minutes, list[str]()
    rounds = 0
    try:
        for number, make in enumerate(makers()):
            (base / str(number)).mkdir()
            targets.append(make(base / str(number)))
        while time.monotonic() < end:
            for target in targets:
                fuzz(target, dice, 50)
            rounds += 1
            if rounds % 5 == 0:
                for target in targets:
                    target.restart(dice.choice((signal.SIGTERM, signal.SIGKILL)))
                print(json.dumps({one.name: one.told for one in targets}), flush=True)
        for target in targets:
            target.close()
    except Exception:
        faults.append(traceback.format_exc())
    finally:
        for target in targets:
            target.kill()
    counts = {one.name: dict(one.told) for one in targets}
    print(json.dumps({"seed": chosen.seed, "minutes": chosen.minutes, **counts, "faults": faults}))
    if not faults:
        shutil.rmtree(base)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
