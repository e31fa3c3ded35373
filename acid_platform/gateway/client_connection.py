"""One client's connection: login, messages in, answers out, and the time that each may take.

An idle connection holds no thread. Its bytes are collected by the event loop; only a whole message
goes to a worker, so a slow client keeps nobody waiting.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from enum import Enum
from typing import TYPE_CHECKING, cast

from acid_platform.errors import AcidError
from acid_platform.gateway import framing
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.framing import Cutter, Limits, MalformedMessage, Message
from acid_platform.gateway.logins import user_of

if TYPE_CHECKING:
    from acid_platform.gateway.gateway_server import GatewayServer
    from acid_platform.gateway.logins import Proof

_LOG = logging.getLogger(__name__)
_REFUSED_SECONDS = 5.0
"""How long a connection stays that is told why it is refused."""
_OF_STRANGERS = Limits(bytes=64 << 10, values=10_000)
"""What is read of a call whose client has to log in first: the call is refused."""
_OPENING = 5
"""Bytes that tell whether a connection begins with SASL."""


class Stage(Enum):
    OPENING = "nothing was read yet"
    LOGIN = "the client logs in"
    CALLS = "calls are answered"


class ClientConnection(asyncio.Protocol):
    """Runs in the event loop; `answer` and `log_in` work elsewhere and call back in the loop."""

    def __init__(self, server: GatewayServer, peer: str, refusal: str = "") -> None:
        """`refusal`: why the first call is answered with an error, and nothing else happens."""
        self.caller = Caller(peer)
        self._server, self._refusal = server, refusal
        self._stage = Stage.OPENING
        self._cutter = Cutter(_OF_STRANGERS)
        self._opening = bytearray()
        """The bytes before the first call: they tell whether SASL begins, and who logs in."""
        self._counted = 0
        self._busy = self._full = False
        self.greeting: asyncio.Task[None] | None = None
        """The handshake, until there is a transport."""
        self.counted_for = ""
        """The user whose connections include this one."""
        self.logged_in_by: Proof | None = None
        """The password by which the user logged in; None for a certificate, or no login."""
        self._over = False
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def busy(self) -> bool:
        """Whether a call or a login is under way."""
        return self._busy

    @property
    def state(self) -> str:
        """How far it has come, in words."""
        return self._stage.value

    # --- the transport's calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Not 0: asyncio's TLS would report an empty buffer as full, and never as empty again.
        self._transport.set_write_buffer_limits(high=1)
        try:
            self.caller.user = user_of(transport.get_extra_info("peercert"))
            if self.caller.user and not self._refusal:
                self._refusal = self._server.entered(self)
        except AcidError as error:
            self._refusal = str(error)
        if self._refusal:
            self._end_within(_REFUSED_SECONDS, "it was refused: " + self._refusal)
        elif self._server.must_log_in(self.caller):
            self._end_within(self._server.bounds.login_seconds, "nobody logged in in time")

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        try:
            if self._stage is Stage.OPENING:
                self._open(data)
            elif self._stage is Stage.LOGIN:
                self._opening += data
                self._log_in()
            else:
                self._cutter.feed(data)
                self._go_on()
        except MalformedMessage as error:
            self.end(str(error))

    def eof_received(self) -> bool:
        if not self._busy:
            try:
                self._cutter.end()
            except MalformedMessage as error:
                self.end(str(error))
        return False

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._stage is Stage.CALLS and not self._busy:
            self._ready()

    def connection_lost(self, error: Exception | None) -> None:
        self._over = True
        if error is not None:
            _LOG.info("%s: the connection ended: %s", self.caller, error)
        self._end_deadline()
        self._server.buffered(self, -self._counted)
        self._counted = 0
        self._server.left(self)

    # --- login ----------------------------------------------------------------------------------

    def _open(self, data: bytes) -> None:
        self._opening += data
        if len(self._opening) < _OPENING:
            self._await_message()
            return
        if framing.begins(self._opening):
            self._stage = Stage.LOGIN
            self._end_within(self._server.bounds.login_seconds, "nobody logged in in time")
            self._log_in()
            return
        self._stage = Stage.CALLS
        if not self._refusal and self._server.must_log_in(self.caller):
            self._refusal = (
                "log in first: by SASL PLAIN (hive.metastore.client.auth.mode=PLAIN) or a client"
                " certificate"
            )
        if not self._refusal:
            self._end_deadline()
            self._cutter = Cutter(self._server.bounds.message)
        self._cutter.feed(self._opening)
        self._opening.clear()
        self._go_on()

    def _log_in(self) -> None:
        if self._busy:
            raise MalformedMessage("more bytes follow the client's response before it was answered")
        try:
            if self._refusal:
                raise framing.LoginRefused(self._refusal)
            login = framing.login(self._opening)
        except framing.LoginRefused as refused:
            self._refuse_login(str(refused))
            return
        if login is None:
            return
        self._opening.clear()
        if self.caller.user and self.caller.user != login.user:
            self._refuse_login(f"the certificate is of {self.caller.user!r}, not of {login.user!r}")
            return
        self._busy = True
        self._end_deadline()
        self._server.log_in(login, self, self._checked)

    def _checked(self, proof: Proof | None, reason: str) -> None:
        self._busy = False
        if self._over:
            return
        if proof is not None and not self.counted_for:
            self.caller.user = proof.user
            reason = self._server.entered(self)
        if proof is None or reason:
            self._refuse_login(reason)
            return
        self.logged_in_by = proof
        self._stage = Stage.CALLS
        self._cutter = Cutter(self._server.bounds.message, only_frames=True)
        self._write(framing.written(framing.SaslStatus.COMPLETE))

    def _refuse_login(self, reason: str) -> None:
        self._server.refusals.note("%s: login refused: %s", self.caller, reason)
        self._write(framing.written(framing.SaslStatus.BAD, reason.encode()))
        self._close()

    # --- calls ----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Begins the next call if its message is whole. Raises MalformedMessage."""
        if self._busy or self._full or self._over:
            self._count()
            return
        message = self._cutter.next()
        self._count()
        if self._over:
            return
        if message is None:
            if self._cutter.has_more:  # after what others have sent
                asyncio.get_running_loop().call_soon(self._resume)
            if self._cutter.pending:
                self._await_message()
            return
        if self._refusal:
            self._server.refusals.note("%s: refused: %s", self.caller, self._refusal)
            self._write(_framed(message, self._server.refuse(message.payload, self._refusal)))
            self._close()
            return
        self._end_deadline()
        self._busy = True
        self._server.settled(self)
        assert self._transport is not None
        self._transport.pause_reading()
        self._server.answer(
            message.payload, self.caller, lambda answer: self._answered(message, answer)
        )

    def _resume(self) -> None:
        if not self._over:
            try:
                self._go_on()
            except MalformedMessage as error:
                self.end(str(error))

    def _answered(self, message: Message, answer: bytes) -> None:
        self._busy = False
        if not self._over:
            if answer:
                self._write(_framed(message, answer))
            if not self._full:
                self._ready()

    def _ready(self) -> None:
        assert self._transport is not None
        self._end_deadline()
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._resume()

    def _write(self, content: bytes) -> None:
        assert self._transport is not None
        self._end_within(self._server.bounds.message_seconds, "the client did not take its answer")
        self._transport.write(content)
        if not self._full:
            self._end_deadline()

    # --- the end --------------------------------------------------------------------------------

    def _count(self) -> None:
        """Tells the server how many bytes wait here."""
        change, self._counted = self._cutter.pending - self._counted, self._cutter.pending
        if change and not self._server.buffered(self, change) and change > 0:
            self.end("too many bytes wait in connections; try again later")

    def _await_message(self) -> None:
        """A message that has begun has to be whole in time."""
        if self._deadline is None:
            seconds = self._server.bounds.message_seconds
            self._end_within(seconds, "a message did not arrive in time")

    def _end_within(self, seconds: float, otherwise: str) -> None:
        self._end_deadline()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(seconds, self.end, otherwise)

    def _end_deadline(self) -> None:
        """The client may take any time now."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        """Ends the connection when what was written has left."""
        assert self._transport is not None
        self._over = True
        self._end_within(_REFUSED_SECONDS, "the client did not take its answer")
        self._transport.close()

    def end(self, reason: str = "") -> None:
        """Ends the connection now."""
        if reason:
            self._server.refusals.note("%s: closed: %s", self.caller, reason)
        self._over = True
        if self._transport is not None:
            self._transport.abort()
        elif self.greeting is not None:
            self.greeting.cancel()


def _framed(message: Message, answer: bytes) -> bytes:
    return struct.pack("!I", len(answer)) + answer if message.framed else answer
