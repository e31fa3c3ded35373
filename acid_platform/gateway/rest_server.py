"""The catalog's port: HTTP/1.1 with one request for each connection, and the gateway's doors.

Strangers make room for others, users share threads and connections, and passwords are checked a few
at a time (P34, P75, P76). A client logs in by a certificate, by HTTP's Basic, or by a token that
/v1/oauth/tokens gives for the same name and password."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import secrets
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from acid_platform.base.first_use import Recent
from acid_platform.base.ports import FewLines, Pace, Strangers, most_connections, network_of
from acid_platform.errors import AcidError, InvalidDefinition
from acid_platform.gateway import logins
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.client_connection import Bounds, CallRates, Workers
from acid_platform.gateway.gateway_server import Entry
from acid_platform.gateway.logins import Proof
from acid_platform.gateway.rest_catalog import CatalogAnswer, CatalogRequest, RestCatalog, failed

_LOG = logging.getLogger(__name__)
_LONGEST_HEAD, _LONGEST_BODY = 16 << 10, 64 << 10
"""Bytes of a request's head, and of its body, which only a login has."""
_TOKEN_SECONDS = 3600
_REMEMBERED = 10_000
"""Logins that need no further check of a password."""
_LOGINS, _MOST_WAITING, _MOST_OF_ONE = 2, 400, 100
"""Passwords that are checked at a time; those that wait, of all and of one address."""
_TICK_SECONDS = 5.0
_TOKENS = "/v1/oauth/tokens"
_T = TypeVar("_T")
_Task = asyncio.Task[None]


class _Refused(Exception):
    """The request is answered with this error."""

    def __init__(self, answer: CatalogAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def _bad(why: str, status: int = 400) -> _Refused:
    return _Refused(failed(status, "BadRequestException", why))


class RestServer:
    """Accepts connections and answers their requests until `stop`."""

    def __init__(
        self,
        catalog: RestCatalog,
        host: str,
        port: int,
        bounds: Bounds | None = None,
        entry: Entry | None = None,
    ) -> None:
        """Listens at once; port 0 takes a free one. Raises InvalidDefinition."""
        self.bounds, self.entry = bounds or Bounds(), entry or Entry()
        self._catalog, self._loop = catalog, asyncio.new_event_loop()
        self._context = self._new_context()
        self._stamp = self.entry.tls.stamp if self.entry.tls else ()
        self._workers = Workers(
            self.bounds.threads, -(-self.bounds.threads // 2), self._catalog.leave
        )
        self._logins, self._rates = Workers(_LOGINS), CallRates(self.bounds)
        self._most = min(self.bounds.connections, most_connections())
        self._strangers = Strangers[_Task](-(-self._most // 2), -(-self._most // 4))
        self._open: dict[_Task, str] = {}
        """The connections, each with its user once that is known."""
        self._of_user = Counter[str]()
        """How many of them each user has."""
        self._known: Recent[bytes, tuple[Proof, float]] = Recent(_REMEMBERED)
        """Who has logged in, and until when that counts, by a hash of what the client sends."""
        self.refusals = FewLines(_LOG)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            raise InvalidDefinition(
                f"can't listen on {host}:{port}: {error}; choose another --listen"
            ) from error
        self._listener.setblocking(False)

    def _new_context(self) -> ssl.SSLContext | None:
        tls = self.entry.tls
        return None if tls is None else tls.context(required=self.entry.users is None)

    @property
    def address(self) -> str:
        """Where clients find the catalog."""
        host, port = self._listener.getsockname()[:2]
        scheme = "http" if self.entry.tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    # --- life -----------------------------------------------------------------------------------

    def serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        tasks = [self._loop.create_task(self._accept()), self._loop.create_task(self._renew())]
        try:
            self._loop.run_forever()
        finally:
            tasks = [*asyncio.all_tasks(self._loop)]
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._listener.close()
            self._workers.close()
            self._logins.close()
            self._loop.close()

    def stop(self) -> None:
        """Ends all connections."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)

    async def _renew(self) -> None:
        """Takes a renewed certificate."""
        while (tls := self.entry.tls) is not None:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                if tls.stamp != self._stamp:
                    self._context, self._stamp = self._new_context(), tls.stamp
                    _LOG.info("new connections get the certificate that %s has now", tls)
            except (OSError, AcidError) as error:
                _LOG.warning("%s", error)

    async def _accept(self) -> None:
        pace = Pace()
        while True:
            try:
                accepted, peer = await self._loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(0.2)  # as when no file descriptor is left
                continue
            if len(self._open) >= self._most and not self._make_room():
                accepted.close()
            else:
                caller = Caller(f"{peer[0]}:{peer[1]}")
                task = self._loop.create_task(self._serve(accepted, caller))
                self._open[task] = ""
                task.add_done_callback(partial(self._ended, accepted))
                gone = self._strangers.come(task, caller.host)
                if gone is not None:
                    gone.cancel()
            await asyncio.sleep(pace.took())

    def _make_room(self) -> bool:
        """Whether a stranger had to go for a new connection."""
        oldest = self._strangers.oldest()
        if oldest is not None:
            oldest.cancel()
            self._left(oldest)
        return oldest is not None

    def _ended(self, accepted: socket.socket, task: _Task) -> None:
        accepted.close()
        self._left(task)

    def _left(self, task: _Task) -> None:
        self._strangers.leave(task)
        if user := self._open.pop(task, ""):
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]

    def _entered(self, user: str) -> None:
        """This connection is no stranger's any more. Raises _Refused if the user has too many."""
        task = asyncio.current_task()
        assert task is not None
        if self._of_user[user] >= -(-self._most // 2):
            raise _Refused(
                failed(429, "TooManyRequests", "half of all connections are yours already")
            )
        self._strangers.leave(task)
        self._of_user[user] += 1
        self._open[task] = user

    # --- a connection ---------------------------------------------------------------------------

    async def _serve(self, accepted: socket.socket, caller: Caller) -> None:
        reader = asyncio.StreamReader(_LONGEST_HEAD)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport: asyncio.Transport | None = None
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self.bounds.login_seconds if self._context else None,
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            answer = await self._answered(reader, writer, caller)
            async with asyncio.timeout(self.bounds.message_seconds):
                writer.write(answer)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.refusals.note("%s: closed: %s", caller, logins.reason_of(error) or "too late")
        finally:
            if transport is not None:
                transport.abort()

    async def _answered(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, caller: Caller
    ) -> bytes:
        """What is sent for the request that comes."""
        try:
            async with asyncio.timeout(self.bounds.login_seconds):
                head = await reader.readuntil(b"\r\n\r\n")
                request, headers = _parsed(head)
                body = await reader.readexactly(_length(headers))
            caller.user = logins.user_of(writer.get_extra_info("peercert"))
            login = headers.get("authorization", "")
            if request.path == _TOKENS and request.method == "POST":
                answer = await self._give_token(body, login, caller)
            else:
                if self.entry.closed and not caller.user:
                    caller.user = await self._user(login, caller)
                answer = await self._asked(request, caller)
            return _bytes(answer, request.method == "HEAD")
        except asyncio.LimitOverrunError:
            return _bytes(_bad("the head of the request is too long", 431).answer)
        except _Refused as refused:
            self.refusals.note("%s: answered with %s", caller, refused.answer.status)
            return _bytes(refused.answer)
        except AcidError as error:  # a wrong file of users, or a certificate of nobody
            self.refusals.note("%s: login refused: %s", caller, error)
            return _bytes(_unknown("nobody can log in so; the log of the server says why").answer)

    async def _asked(self, request: CatalogRequest, caller: Caller) -> CatalogAnswer:
        who = caller.user or network_of(caller.host)
        self._entered(who)
        await asyncio.sleep(self._rates.pause(who, time.monotonic()))
        return await self._in(self._workers, partial(self._catalog.answer, request, caller), who)

    async def _in(self, workers: Workers, work: Callable[[], _T], who: str) -> _T:
        """What the work returns, in a thread; refused if it fails."""
        done: asyncio.Future[_T] = self._loop.create_future()

        def ended(set_it: Callable[[], None]) -> None:
            if not done.done():
                set_it()

        def run() -> None:
            if done.cancelled():
                return  # the client has gone
            try:
                result = work()
                tell = partial(done.set_result, result)
            except Exception as error:
                if not isinstance(error, _Refused):
                    _LOG.exception("a request failed")
                    error = _Refused(
                        failed(500, "InternalServerError", "the server failed; its log says why")
                    )
                tell = partial(done.set_exception, error)
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(ended, tell)

        workers.submit(run, who)
        return await done

    # --- logins ---------------------------------------------------------------------------------

    async def _user(self, header: str, caller: Caller) -> str:
        """Who sends this header. Raises _Refused."""
        kind, _, sent = header.partition(" ")
        if kind.lower() == "bearer":
            proof = self._remembered(b"token " + sent.strip().encode())
            if proof is None:
                raise _unknown("the token is unknown or has expired; log in again")
            return proof.user
        if kind.lower() != "basic":
            raise _unknown("log in with a name and a password, or a token of /v1/oauth/tokens")
        key = b"basic " + sent.encode()
        proof = self._remembered(key) or await self._checked(*_pair(sent), caller)
        self._remember(key, proof)
        return proof.user

    async def _give_token(self, body: bytes, header: str, caller: Caller) -> CatalogAnswer:
        """A token for a name (client_id) and its password (client_secret), or for Basic's."""
        given = dict(parse_qsl(body.decode("ascii", "replace"), max_num_fields=20))
        if given.get("grant_type") != "client_credentials" or self.entry.users is None:
            raise _bad("a token is given for grant_type=client_credentials, where users log in")
        name, password = given.get("client_id", ""), given.get("client_secret", "")
        kind, _, sent = header.partition(" ")
        if not name and kind.lower() == "basic":
            name, password = map(unquote_plus, _pair(sent))
        proof, token = await self._checked(name, password, caller), secrets.token_urlsafe(32)
        self._remember(b"token " + token.encode(), proof)
        told = {"access_token": token, "token_type": "bearer", "expires_in": _TOKEN_SECONDS}
        return CatalogAnswer(200, json.dumps(told).encode(), (("Cache-Control", "no-store"),))

    def _remembered(self, key: bytes) -> Proof | None:
        """Who logged in so, if the user still has that password."""
        found, users = self._known.get(hashlib.sha256(key).digest()), self.entry.users
        if found is None or users is None or found[1] < time.monotonic():
            return None
        return found[0] if found[0].is_in(users.secrets()) else None

    def _remember(self, key: bytes, proof: Proof) -> None:
        until = time.monotonic() + _TOKEN_SECONDS
        self._known.put(hashlib.sha256(key).digest(), (proof, until))

    async def _checked(self, name: str, password: str, caller: Caller) -> Proof:
        """What proves the password. Raises _Refused."""
        users, network = self.entry.users, network_of(caller.host)
        if users is None:
            raise _unknown("clients log in here with a certificate")
        waiting = self._logins.waiting
        if waiting >= _MOST_WAITING or self._logins.waiting_of(network) >= _MOST_OF_ONE:
            raise _Refused(failed(503, "ServiceUnavailableException", "too many logins wait"))

        def check() -> Proof | None:
            if not self._rates.begin_login(caller.host):
                raise _Refused(
                    failed(429, "TooManyRequests", "too many failed logins; try in a minute")
                )
            proof = None
            try:
                proof = users.verify(name, password)
            finally:
                self._rates.end_login(caller.host, proof is None)
            return proof

        proof = await self._in(self._logins, check, network)
        if proof is None:
            raise _unknown("wrong user or password")
        return proof


def _unknown(why: str) -> _Refused:
    header = ("WWW-Authenticate", 'Basic realm="acid", charset="UTF-8"')
    return _Refused(failed(401, "NotAuthorizedException", why, header))


def _pair(sent: str) -> tuple[str, str]:
    """The name and the password of HTTP's Basic. Raises _Refused."""
    try:
        name, colon, password = base64.b64decode(sent, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
    if not colon:
        raise _unknown("the header Authorization is not HTTP's Basic")
    return name, password


def _parsed(head: bytes) -> tuple[CatalogRequest, dict[str, str]]:
    """The request, and its headers by their names in lower case. Raises _Refused."""
    first, *lines = head[:-4].split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.1", b"HTTP/1.0") or not head.isascii():
        raise _bad("that is no request of HTTP/1.1")
    headers = dict[str, str]()
    for line in lines:
        name, colon, value = line.decode().partition(":")
        key = name.lower()
        if not colon or not key or key != key.strip() or key in headers:
            raise _bad("a header is malformed, or comes twice")
        headers[key] = value.strip()
    try:
        target = urlsplit(words[1].decode())
        query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=20))
    except ValueError as error:
        raise _bad(f"the path or its query is malformed: {error}") from error
    return CatalogRequest(words[0].decode(), target.path, query), headers


def _length(headers: dict[str, str]) -> int:
    """The bytes of the body. Raises _Refused."""
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers:
        raise _bad("send the body with Content-Length", 411)
    if not (length.isdigit() and len(length) < 9):
        raise _bad("Content-Length is no number")
    if int(length) > _LONGEST_BODY:
        raise _bad(f"the body is too long; this catalog takes {_LONGEST_BODY} bytes", 413)
    return int(length)


def _bytes(answer: CatalogAnswer, head_only: bool = False) -> bytes:
    """An answer as it is sent."""
    headers = [("Content-Length", str(len(answer.body))), ("Connection", "close")]
    if answer.body:
        headers.append(("Content-Type", "application/json"))
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in (*headers, *answer.headers)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if head_only else answer.body)
