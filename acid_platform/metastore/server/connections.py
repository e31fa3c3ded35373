"""The server's end of all connections: one selector, no thread, nobody waits for another.

Handshakes, half messages and slow readers are kept per peer and go on when bytes come. A peer that
breaks a rule loses its connection; the others don't notice.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from acid_platform.metastore import wire

_LOG = logging.getLogger("acid_platform.metastore")

GREETING_SECONDS = 10.0
"""A peer that has not proved itself by then is dropped."""

SLOW_READER_SECONDS = 30.0
"""A peer that does not take its answer for so long is dropped."""

MOST_STRANGERS = 128
"""Connections without a finished handshake; one more pushes out the oldest."""

_READ = 1 << 18


class Peer:
    """One connection."""

    __slots__ = ("challenge", "closed", "frames", "key", "known", "out", "since", "sock")

    def __init__(self, sock: socket.socket, key: bytes) -> None:
        self.sock, self.key = sock, key
        self.known = self.closed = False
        self.challenge = wire.challenge()
        self.frames = wire.Frames(wire.LARGEST_GREETING)
        self.out = bytearray()
        self.since = time.monotonic()
        """When it connected, or when its unsent answer last moved."""


class Peers:
    """All connections of the listeners, each with the key that its clients have to know."""

    def __init__(self, listeners: Sequence[tuple[socket.socket, bytes]]) -> None:
        self._selector = selectors.DefaultSelector()
        self._listeners = list(listeners)
        for listener, key in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, key)
        self._bell_out, self._bell_in = os.pipe()
        for end in (self._bell_out, self._bell_in):
            os.set_blocking(end, False)
        self._selector.register(self._bell_out, selectors.EVENT_READ, None)
        self._peers: set[Peer] = set()
        self._strangers: dict[Peer, None] = {}
        self._slow: set[Peer] = set()
        self.refused = 0
        """Connections that were dropped for what they sent, or did not send."""

    @property
    def known(self) -> int:
        """How many clients there are."""
        return len(self._peers) - len(self._strangers)

    @property
    def any(self) -> bool:
        return bool(self._peers)

    def ring(self) -> None:
        """Ends a `wait` at once; safe in a signal handler."""
        with suppress(BlockingIOError):
            os.write(self._bell_in, b"!")

    def wait(self, seconds: float) -> list[tuple[Peer, bytes]]:
        """The messages of known peers that came, after at most so many seconds."""
        messages: list[tuple[Peer, bytes]] = []
        for key, events in self._selector.select(seconds):
            one = key.data
            if isinstance(one, Peer):
                if events & selectors.EVENT_WRITE:
                    self._flush(one)
                else:
                    self._read(one, messages)
            elif one is None:
                with suppress(BlockingIOError):
                    os.read(self._bell_out, 4096)
            elif isinstance(key.fileobj, socket.socket):
                self._accept(key.fileobj, one)
        self._drop_late()
        return messages

    def send(self, peer: Peer, payload: bytes) -> None:
        """Sends now what the peer takes, and the rest when it takes more."""
        if peer.closed:
            return
        waiting = bool(peer.out)
        data = wire.frame(payload)
        sent = 0
        if not waiting:
            try:
                sent = peer.sock.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self.drop(peer)
                return
        if sent < len(data):
            peer.out += data[sent:]
        if peer.out and not waiting:
            # Nothing more is read from it before it has read what it asked for.
            peer.since = time.monotonic()
            self._slow.add(peer)
            self._selector.modify(peer.sock, selectors.EVENT_WRITE, peer)

    def drop(self, peer: Peer, why: str = "") -> None:
        """Closes the connection; `why` is for the log, if it was the peer's fault."""
        if peer.closed:
            return
        if why:
            self.refused += 1
            _LOG.warning("refused a connection: %s", why)
        peer.closed = True
        self._peers.discard(peer)
        self._strangers.pop(peer, None)
        self._slow.discard(peer)
        with suppress(KeyError, ValueError):
            self._selector.unregister(peer.sock)
        peer.sock.close()

    def close(self, seconds: float = 1.0) -> None:
        """Takes no more connections, sends what is unsent for so long, and ends them all."""
        for listener, _ in self._listeners:
            self._selector.unregister(listener)
            listener.close()
        deadline = time.monotonic() + seconds
        while self._slow and time.monotonic() < deadline:
            for key, events in self._selector.select(0.05):
                if isinstance(key.data, Peer) and events & selectors.EVENT_WRITE:
                    self._flush(key.data)
        for peer in list(self._peers):
            self.drop(peer)
        self._selector.close()
        os.close(self._bell_in)
        os.close(self._bell_out)

    # --- events -----------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, key: bytes) -> None:
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            # Out of file descriptors: whoever has not proved itself makes room.
            _LOG.warning("can't take a connection: %s", error)
            for stranger in list(self._strangers):
                self.drop(stranger, "no room for strangers")
            time.sleep(0.01)
            return
        sock.setblocking(False)
        wire.tune(sock)
        peer = Peer(sock, key)
        if len(self._strangers) >= MOST_STRANGERS:
            self.drop(next(iter(self._strangers)), f"{MOST_STRANGERS} unfinished handshakes")
        self._peers.add(peer)
        self._strangers[peer] = None
        self._selector.register(sock, selectors.EVENT_READ, peer)
        self.send(peer, wire.greeting(peer.challenge))

    def _read(self, peer: Peer, messages: list[tuple[Peer, bytes]]) -> None:
        try:
            data = peer.sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(peer)
            return
        try:
            for payload in peer.frames.feed(data):
                if peer.known:
                    messages.append((peer, payload))
                elif not self._greeted(peer, payload):
                    return
        except wire.Malformed as error:
            self.drop(peer, str(error))

    def _greeted(self, peer: Peer, payload: bytes) -> bool:
        """Whether the peer knows the key; if not, it is told so and dropped."""
        said = wire.read_greeting(payload)
        theirs = str(said.get("challenge"))
        if said.get("acid") != wire.PROTOCOL:
            why = f"protocol {said.get('acid')} is not {wire.PROTOCOL}"
        elif not wire.proves(said, wire.proof(peer.key, "client", peer.challenge, theirs)):
            why = "the key is wrong"
        else:
            answer = wire.proof(peer.key, "server", peer.challenge, theirs)
            self.send(peer, wire.greeting(peer.challenge, answer))
            peer.known = True
            peer.frames.limit = wire.LARGEST_MESSAGE
            self._strangers.pop(peer, None)
            return True
        self.send(peer, b'{"refused": "%s"}' % why.encode())
        self.drop(peer, why)
        return False

    def _flush(self, peer: Peer) -> None:
        try:
            sent = peer.sock.send(peer.out)
        except BlockingIOError:
            return
        except OSError:
            self.drop(peer)
            return
        del peer.out[:sent]
        peer.since = time.monotonic()
        if not peer.out:
            self._slow.discard(peer)
            self._selector.modify(peer.sock, selectors.EVENT_READ, peer)

    def _drop_late(self) -> None:
        now = time.monotonic()
        # In the order of their coming.
        while self._strangers:
            oldest = next(iter(self._strangers))
            if now - oldest.since < GREETING_SECONDS:
                break
            self.drop(oldest, f"no handshake within {GREETING_SECONDS:g} s")
        if self._slow:
            for peer in [one for one in self._slow if now - one.since > SLOW_READER_SECONDS]:
                self.drop(peer, f"did not take its answer for {SLOW_READER_SECONDS:g} s")
