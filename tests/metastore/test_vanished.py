"""Metastores that fall silent: stopped processes, and machines that leave the network (P10)."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import InvalidDefinition, MetastoreUnavailable
from acid_platform.metastore import endpoint, wire
from acid_platform.metastore.client import link
from acid_platform.metastore.client import target as targets
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.target import remote
from tests.log.members import Members
from tests.log.servers import serving
from tests.metastore.processes import free_port
from tests.metastore.test_transport import KEY, Service

HOST = "127.0.0.1"


@pytest.mark.slow
def test_P10_a_client_leaves_a_leader_that_is_silent(tmp_path: Path) -> None:
    """A stopped process acknowledges bytes but answers nothing, as behind a dead disk."""
    with (
        serving("s3") as (where, _),
        Members(where, tmp_path, 2).start() as members,
        Metastore.connect(where) as client,
    ):
        client.databases()
        members.leading().pause()
        began = time.monotonic()
        client.create_database("after")
        assert time.monotonic() - began < 12  # and not the 60 s of an answer
        again = time.monotonic()
        Metastore.connect(where).close()
        assert time.monotonic() - again < 6


def test_P10_a_connection_to_a_machine_that_vanished_ends_after_the_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(endpoint.KEY, KEY)
    monkeypatch.setenv(endpoint.SILENCE, "5")
    target = remote("tcp://127.0.0.1:7433")
    assert target.silence == 5
    with socket.create_server((HOST, 0)) as server:
        sock = socket.create_connection(server.getsockname())
        wire.tune(sock, target.silence)
        with sock:
            got = [
                sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
                for name in ("TCP_USER_TIMEOUT", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
            ]
    assert got[0] == 5000 and got[1] + got[2] * got[3] == 5
    for wrong in ("0", "soon", "nan"):
        monkeypatch.setenv(endpoint.SILENCE, wrong)
        with pytest.raises(InvalidDefinition, match=r"number of seconds from 1 to 3600"):
            remote("tcp://127.0.0.1:7433")


# --- a machine of its own -----------------------------------------------------------------------


def ip(*command: str) -> str:
    done = subprocess.run(["ip", *command], capture_output=True, text=True, check=True)
    return done.stdout


class Machine:
    """A network namespace, which can vanish: packets to it are lost, and no sender is told."""

    def __init__(self) -> None:
        self.name = f"acid{secrets.token_hex(2)}"
        net = f"10.231.{secrets.randbelow(256)}"
        self.here, self.there = f"{net}.1", f"{net}.2"
        ip("netns", "add", self.name)
        ip("link", "add", self.name, "type", "veth", "peer", "name", "far", "netns", self.name)
        ip("addr", "add", f"{self.here}/24", "dev", self.name)
        ip("link", "set", self.name, "up")
        for command in (
            ("addr", "add", f"{self.there}/24", "dev", "far"),
            ("link", "set", "far", "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", self.name, *command)
        shown = ip("-n", self.name, "link", "show", "far")
        mac = shown.split("link/ether ")[1].split()[0]
        # Known for ever: otherwise the kernel soon says that the host is unreachable.
        ip("neigh", "replace", self.there, "lladdr", mac, "dev", self.name, "nud", "permanent")

    @property
    def inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def vanish(self) -> None:
        ip("-n", self.name, "addr", "del", f"{self.there}/24", "dev", "far")

    def remove(self) -> None:
        ip("netns", "del", self.name)


@pytest.fixture
def machine() -> Iterator[Machine]:
    if os.getuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the command ip")
    try:
        made = Machine()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr}")
    yield made
    made.remove()


@pytest.mark.slow
def test_P10_the_silence_ends_the_wait(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(endpoint.KEY, KEY)
    monkeypatch.setenv(endpoint.SILENCE, "3")
    monkeypatch.setattr(targets, "START_SECONDS", 0.1)
    monkeypatch.setattr(link, "START_SECONDS", 0.1)
    monkeypatch.setattr(wire, "GREETING_SECONDS", 1.0)
    member = Service(tmp_path / "only", free_port(), machine.there, machine.inside)
    try:
        with Metastore.connect(member.uri) as client:
            client.databases()
            machine.vanish()
            began = time.monotonic()
            with pytest.raises(MetastoreUnavailable):
                client.databases()
            assert time.monotonic() - began < 12
    finally:
        member.kill()
