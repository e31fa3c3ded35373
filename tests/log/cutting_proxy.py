"""A TCP proxy before PostgreSQL that cuts connections when it is told to."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """Cuts a connection before a message is passed on, or after the server has answered it."""

    def __init__(self, port: int, seed: int = 0) -> None:
        self._to = port
        self._random = random.Random(seed)
        self._guard = threading.Lock()
        self.lose_answer_to = b""
        """The next message with these bytes is done, but its answer is lost."""
        self.chance = 0.0
        """That of a cut, for each message."""
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Passes messages and answers on. A client sends nothing before it has the answer."""
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as server:
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()
            self._pass_on(client, server)
            server.shutdown(socket.SHUT_RDWR)  # ends the other thread, which waits for answers

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while message := client.recv(1 << 20):
                cut = self._decide(message)
                if cut == "before":
                    return
                if cut == "after":
                    # The answer goes to nobody; whoever reads first gets it, and both end.
                    client.shutdown(socket.SHUT_RDWR)
                    server.sendall(message)
                    server.settimeout(0.2)
                    with suppress(OSError):
                        while server.recv(1 << 20):
                            pass
                    return
                server.sendall(message)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while answer := server.recv(1 << 20):
                client.sendall(answer)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _decide(self, message: bytes) -> str:
        with self._guard:
            cut = ""
            if self.lose_answer_to and self.lose_answer_to in message:
                self.lose_answer_to, cut = b"", "after"
            elif self._random.random() < self.chance:
                cut = self._random.choice(("before", "after"))
            self.cuts += bool(cut)
            return cut
