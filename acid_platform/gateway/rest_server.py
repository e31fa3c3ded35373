"""The catalog's port: HTTP/1.1 with one request for each connection, and the gateway's doors.

A client logs in by a certificate, by HTTP's Basic, or by a token that /v1/oauth/tokens gives for
the same name and password."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import secrets
import socket
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from acid_platform.base.first_use import Recent
from acid_platform.base.ports import network_of
from acid_platform.errors import AcidError
from acid_platform.gateway import logins
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.client_connection import Bounds, Workers
from acid_platform.gateway.gateway_server import Entry
from acid_platform.gateway.guarded_port import ClientRefused, GuardedPort
from acid_platform.gateway.logins import Proof
from acid_platform.gateway.rest_catalog import CatalogAnswer, CatalogRequest, RestCatalog, failed

_LONGEST_HEAD, _LONGEST_BODY = 16 << 10, 64 << 10
"""Bytes of a request's head, and of its body, which only a login has."""
_TOKEN_SECONDS = 3600
_REMEMBERED = 10_000
"""Logins that need no further check of a password."""
_TOKENS, _AGENTS = "/v1/oauth/tokens", "/mcp"
_MOST_COMPUTING = 4
"""Calls of agents that are answered at a time."""
Agents = Callable[[dict[str, str], bytes, Caller], CatalogAnswer]
"""Answers a message of MCP with these headers, by their names in lower case."""
_KINDS = {
    401: "NotAuthorizedException",
    429: "TooManyRequests",
    500: "InternalServerError",
    503: "ServiceUnavailableException",
}
"""The catalog's word for why a client is refused; any other is a bad request."""


def _told(refused: ClientRefused) -> CatalogAnswer:
    login = ("WWW-Authenticate", 'Basic realm="acid", charset="UTF-8"')
    headers = [login] if refused.status == 401 else []
    kind = _KINDS.get(refused.status, "BadRequestException")
    return failed(refused.status, kind, refused.why, *headers)


class RestServer(GuardedPort):
    """Answers one request on each connection."""

    def __init__(
        self,
        catalog: RestCatalog,
        host: str,
        port: int,
        bounds: Bounds | None = None,
        entry: Entry | None = None,
        agents: Agents | None = None,
    ) -> None:
        """`agents` answers requests of MCP, at /mcp. Listens at once; port 0 takes a free one.

        Raises InvalidDefinition."""
        super().__init__(host, port, bounds, entry, catalog.leave)
        self._catalog, self._agents = catalog, agents
        self._computing = Workers(_MOST_COMPUTING, -(-_MOST_COMPUTING // 2), catalog.leave)
        self._known: Recent[bytes, tuple[Proof, float]] = Recent(_REMEMBERED)
        """Who has logged in, and until when that counts, by a hash of what the client sends."""

    @property
    def address(self) -> str:
        """Where clients find the catalog."""
        scheme = "http" if self.entry.tls is None else "https"
        return f"{scheme}://{self.host_and_port}"

    def tidy(self) -> None:
        self._catalog.leases.end_old()

    def serve(self) -> None:
        super().serve()
        self._computing.close()
        self._catalog.leases.close()

    # --- a connection ---------------------------------------------------------------------------

    async def _converse(self, accepted: socket.socket, caller: Caller) -> None:
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
                answer = await self._asked(request, headers, body, caller)
            return _bytes(answer, request.method == "HEAD")
        except asyncio.LimitOverrunError:
            return _bytes(_told(ClientRefused(431, "the head of the request is too long")))
        except ClientRefused as refused:
            self.refusals.note("%s: answered with %s", caller, refused.status)
            return _bytes(_told(refused))
        except AcidError as error:  # a wrong file of users, or a certificate of nobody
            self.refusals.note("%s: login refused: %s", caller, error)
            return _bytes(
                _told(ClientRefused(401, "nobody can log in so; the log of the server says why"))
            )

    async def _asked(
        self, request: CatalogRequest, headers: dict[str, str], body: bytes, caller: Caller
    ) -> CatalogAnswer:
        who = caller.user or network_of(caller.host)
        self._entered(who)
        await asyncio.sleep(self._rates.pause(who, time.monotonic()))
        if request.path != _AGENTS or self._agents is None:
            work = partial(self._catalog.answer, request, caller)
            return await self._in(self._workers, work, who)
        if request.method != "POST":
            raise ClientRefused(405, "send each message of MCP by POST")
        if "origin" in headers:
            raise ClientRefused(403, "web pages may not call tools here")
        call = partial(self._agents, headers, body, caller)
        return await self._in(self._computing, call, who)

    # --- logins ---------------------------------------------------------------------------------

    async def _user(self, header: str, caller: Caller) -> str:
        """Who sends this header. Raises ClientRefused."""
        kind, _, sent = header.partition(" ")
        if kind.lower() == "bearer":
            proof = self._remembered(b"token " + sent.strip().encode())
            if proof is None:
                raise ClientRefused(401, "the token is unknown or has expired; log in again")
            return proof.user
        if kind.lower() != "basic":
            raise ClientRefused(
                401, "log in with a name and a password, or a token of /v1/oauth/tokens"
            )
        key = b"basic " + sent.encode()
        proof = self._remembered(key) or await self._checked(*_pair(sent), caller)
        self._remember(key, proof)
        return proof.user

    async def _give_token(self, body: bytes, header: str, caller: Caller) -> CatalogAnswer:
        """A token for a name (client_id) and its password (client_secret), or for Basic's."""
        given = dict(parse_qsl(body.decode("ascii", "replace"), max_num_fields=20))
        if given.get("grant_type") != "client_credentials" or self.entry.users is None:
            raise ClientRefused(
                400, "a token is given for grant_type=client_credentials, where users log in"
            )
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


def _pair(sent: str) -> tuple[str, str]:
    """The name and the password of HTTP's Basic. Raises ClientRefused."""
    try:
        name, colon, password = base64.b64decode(sent, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
    if not colon:
        raise ClientRefused(401, "the header Authorization is not HTTP's Basic")
    return name, password


def _parsed(head: bytes) -> tuple[CatalogRequest, dict[str, str]]:
    """The request, and its headers by their names in lower case. Raises ClientRefused."""
    first, *lines = head[:-4].split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.1", b"HTTP/1.0") or not head.isascii():
        raise ClientRefused(400, "that is no request of HTTP/1.1")
    headers = dict[str, str]()
    for line in lines:
        name, colon, value = line.decode().partition(":")
        key = name.lower()
        if not colon or not key or key != key.strip() or key in headers:
            raise ClientRefused(400, "a header is malformed, or comes twice")
        headers[key] = value.strip()
    try:
        target = urlsplit(words[1].decode())
        query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=20))
    except ValueError as error:
        raise ClientRefused(400, f"the path or its query is malformed: {error}") from error
    return CatalogRequest(words[0].decode(), target.path, query), headers


def _length(headers: dict[str, str]) -> int:
    """The bytes of the body. Raises ClientRefused."""
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers:
        raise ClientRefused(411, "send the body with Content-Length")
    if not (length.isdigit() and len(length) < 9):
        raise ClientRefused(400, "Content-Length is no number")
    if int(length) > _LONGEST_BODY:
        raise ClientRefused(413, f"the body is too long; this catalog takes {_LONGEST_BODY} bytes")
    return int(length)


def _bytes(answer: CatalogAnswer, head_only: bool = False) -> bytes:
    """An answer as it is sent."""
    headers = [("Content-Length", str(len(answer.body))), ("Connection", "close")]
    if answer.body:
        headers.append(("Content-Type", "application/json"))
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in (*headers, *answer.headers)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if head_only else answer.body)
