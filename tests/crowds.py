"""Somebody who holds many connections to a port, and says nothing or half of something."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held(address: tuple[str, int], count: int, sent: bytes = b"") -> Iterator[None]:
    """Somebody holds so many connections, and opens a new one for each that is ended."""
    stop = threading.Event()

    def hold() -> None:
        sockets: list[socket.socket] = []
        while not stop.is_set():
            for one in [*sockets]:
                try:
                    if not one.recv(100):
                        raise OSError
                except BlockingIOError:
                    continue
                except OSError:
                    sockets.remove(one)
                    one.close()
            while len(sockets) < count and not stop.is_set():
                try:
                    one = socket.create_connection(address, 2)
                    one.sendall(sent)
                except OSError:
                    break
                one.setblocking(False)
                sockets.append(one)
            time.sleep(0.01)
        for one in sockets:
            one.close()

    thread = threading.Thread(target=hold)
    thread.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        stop.set()
        thread.join()
