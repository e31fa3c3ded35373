"""A session of PostgreSQL's protocol: statements one after the other, each at one snapshot.

SQL is DuckDB's: what clients write for PostgreSQL is near to it ("names", casts by ::, date_trunc),
while in Spark's SQL a quoted name would be a text. A statement reads the snapshot that is present
when it begins, and all statements of a transaction read one, as PostgreSQL's `repeatable read`;
SET acid.as_of keeps a session at one."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from acid_platform.base.ports import network_of
from acid_platform.errors import (
    AcidError,
)
from acid_platform.gateway import postgres_messages as wire
from acid_platform.gateway.guarded_port import ClientRefused
from acid_platform.gateway.postgres_settings import (
    ALSO_TOLD,
    CHOSEN,
    CODES,
    FIXED,
    SETTINGS,
    STATES,
    TOLD,
    SqlError,
    is_control,
    milliseconds,
    setting_named,
    shown_by,
)
from acid_platform.gateway.postgres_text import (
    in_duckdbs_words,
    statements_of,
    with_types,
    words_of,
)

if TYPE_CHECKING:
    from acid_platform.gateway.authorization import Caller
    from acid_platform.gateway.logins import Proof
    from acid_platform.gateway.postgres_server import PostgresServer, Reading

_LONGEST_MESSAGE, _MOST_QUEUED = 4 << 20, 8 << 20
"""Bytes of a message, and of messages that wait in a session."""
_MOST_PREPARED = 256
"""Statements, and portals, that a session keeps by name."""


class ClientGone(Exception):
    """The session ends, for a client that leaves or that the protocol forbids."""


@dataclass(slots=True)
class _Prepared:
    query: str
    oids: list[int]
    """Types of parameters that the client names; 0 leaves one to us."""
    columns: list[wire.ShownColumn] | None = None
    parameters: list[str] = field(default_factory=list)
    text: str = ""
    """The query as it is computed."""


@dataclass(slots=True)
class _Portal:
    prepared: _Prepared
    values: list[tuple[Any, str]]
    binary: list[bool]
    parts: Iterator[list[list[Any]]] | None = None
    waiting: list[bytes] = field(default_factory=list)
    """Rows that are computed and not sent."""
    sent: int = 0
    done: bool = False


class Session:
    """A client that has logged in: its statements, one after the other."""

    def __init__(
        self,
        server: PostgresServer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        caller: Caller,
        proof: Proof | None,
        reading: Reading,
    ) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._proof, self._reading = proof, reading
        self._who = caller.user or network_of(caller.host)
        self._settings = {**SETTINGS}
        self._first_settings: dict[str, str] = {}
        self._messages: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()
        self._queued, self._taken = 0, asyncio.Event()
        self._state = b"I"
        """I: no transaction, T: in one, E: in one that failed."""
        self._prepared: dict[str, _Prepared] = {}
        self._portals: dict[str, _Portal] = {}
        self._open_portal: _Portal | None = None
        self._busy, self._stopped = False, ""
        """Whether a message is answered, and why its statement was interrupted."""

    def cancel(self, why: str = "the client canceled the statement") -> None:
        """Ends the statement that is computed, if one is."""
        if self._busy:
            self._stopped = self._stopped or why
            self._hurry()

    def end(self) -> None:
        """Ends what is computed, and forgets the rest once it has ended."""
        self._busy = True
        self.cancel("the session has ended")
        self._server.ending.add(self)
        self._server.computing.submit(self._close, self._who)

    def _close(self) -> None:
        self._reading.close()
        self._busy = False
        self._server.ending.discard(self)

    def interrupt(self) -> None:
        self._reading.interrupt()

    def _hurry(self) -> None:
        """Interrupts again and again: what begins afterwards does not notice an interrupt."""
        if self._busy and self._stopped:
            self._reading.interrupt()
            self._server.later(0.1, self._hurry)

    # --- messages -------------------------------------------------------------------------------

    async def serve(self, parameters: dict[str, str], key: tuple[int, int]) -> None:
        """Raises ClientGone, OSError, TimeoutError, IncompleteReadError when it ends."""
        send = self._writer.write
        send(wire.message(b"R", struct.pack("!i", 0)))
        try:
            await self._take_settings(parameters)
        except (SqlError, AcidError) as error:
            raise ClientRefused(403, str(error)) from error
        for name in TOLD:
            send(wire.status(name, self._settings[name]))
        for shown, name in ALSO_TOLD.items():
            send(wire.status(shown, self._settings[name]))
        send(wire.message(b"K", struct.pack("!ii", *key)) + self._ready())
        pump = asyncio.create_task(self._pump())
        skipping = False
        try:
            while True:
                await self._drained()
                self._busy, self._stopped = False, ""
                kind, body = await self._messages.get()
                self._busy = True
                self._queued -= len(body)
                self._taken.set()
                if kind == b"":
                    return
                if skipping and kind != b"S":
                    continue
                skipping = False
                try:
                    self._server.require_user(self._proof)
                    await self._answer(kind, wire.Body(body))
                except (AcidError, SqlError, ClientRefused) as error:
                    await self._failed(error)
                    skipping = kind != b"Q"
                    if kind == b"Q":
                        await self._synced()
        finally:
            pump.cancel()

    async def _pump(self) -> None:
        """Takes messages while others are answered, so that a client that leaves is noticed."""
        try:
            while True:
                kind, length = struct.unpack("!ci", await self._reader.readexactly(5))
                if not 4 <= length <= _LONGEST_MESSAGE or kind == b"X":
                    break
                body = await self._reader.readexactly(length - 4)
                self._queued += len(body)
                self._messages.put_nowait((kind, body))
                while self._queued > _MOST_QUEUED or self._messages.qsize() > 1000:
                    self._taken.clear()
                    await self._taken.wait()
        except (OSError, asyncio.IncompleteReadError):
            pass
        self.cancel("the client has gone")
        self._messages.put_nowait((b"", b""))

    async def _drained(self) -> None:
        async with asyncio.timeout(self._server.bounds.message_seconds):
            await self._writer.drain()

    def _ready(self) -> bytes:
        return wire.message(b"Z", self._state)

    async def _synced(self) -> None:
        """The end of a statement, or of several that the client sent together."""
        if self._state == b"I":
            await self._settle()
        self._writer.write(self._ready())

    async def _settle(self) -> None:
        self._portals.clear()
        self._open_portal = None
        self._stopped = ""
        await self._compute(self._reading.settle)

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, ClientRefused):
            code, why = STATES.get(error.status, "XX000"), error.why
        elif isinstance(error, SqlError):
            code, why = error.code, error.why
        elif self._stopped:
            code, why = "57014", self._stopped
        else:
            code = next(code for kind, code in CODES if isinstance(error, kind))
            why = str(error)
        self._writer.write(wire.failure(code, why))
        if self._state == b"T":
            self._state = b"E"
        self._open_portal = None

    async def _compute(self, work: Callable[[], Any]) -> Any:
        """What a statement's work returns; one that takes too long is interrupted."""
        if self._stopped:
            raise SqlError("57014", self._stopped)
        allowed = self._server.seconds
        if (own := int(self._settings["statement_timeout"]) / 1000) > 0:
            allowed = min(allowed, own)
        late = self._server.later(
            allowed, self.cancel, f"the statement took longer than {allowed:g} s"
        )
        try:
            return await self._server.compute(work, self._who)
        finally:
            late.cancel()

    async def _answer(self, kind: bytes, body: wire.Body) -> None:
        match kind:
            case b"Q":
                await self._query(body.text())
                await self._synced()
            case b"P":
                await self._parse(body)
            case b"B":
                await self._bind(body)
            case b"D":
                await self._describe(body)
            case b"E":
                await self._execute(body)
            case b"C":
                which, name = body.take(1), body.text()
                _ = (self._prepared if which == b"S" else self._portals).pop(name, None)
                self._writer.write(wire.message(b"3"))
            case b"S":
                await self._synced()
            case b"H":
                pass
            case b"d" | b"c" | b"f":
                pass  # of a COPY that was refused
            case _:
                raise SqlError("0A000", f"messages of the kind {kind!r} are not answered here")

    # --- statements -----------------------------------------------------------------------------

    async def _query(self, script: str) -> None:
        statements = statements_of(script)
        if not statements:
            self._writer.write(wire.message(b"I"))
        for statement in statements:
            if (done := await self._control(statement)) is not None:
                shown = shown_by(statement)
                self._writer.write((wire.described(shown) if shown else b"") + done)
                continue
            prepared = _Prepared(statement, [])
            columns = await self._known(prepared)
            if prepared.parameters:
                raise SqlError("42P02", "a statement with parameters has to be prepared")
            portal = _Portal(prepared, [], [False] * len(columns))
            self._writer.write(wire.described(columns))
            await self._send(portal, 0)
            await self._drained()

    async def _parse(self, body: wire.Body) -> None:
        name, sql = body.text(), body.text()
        oids = body.numbers("i")
        statements = statements_of(sql)
        if len(statements) > 1:
            raise SqlError("42601", "a prepared statement is one statement")
        if name not in self._prepared and len(self._prepared) >= _MOST_PREPARED:
            raise SqlError("53400", f"a session keeps {_MOST_PREPARED} statements at most")
        self._prepared[name] = _Prepared(statements[0] if statements else "", oids)
        self._writer.write(wire.message(b"1"))

    async def _bind(self, body: wire.Body) -> None:
        name, prepared = body.text(), self._found(body.text())
        forms = body.numbers("h")
        sent = [body.value() for _ in range(body.number("h"))]
        wanted = body.numbers("h")
        columns = await self._known(prepared)
        if len(sent) != len(prepared.parameters):
            raise SqlError("08P01", f"the statement has {len(prepared.parameters)} parameters")
        forms = forms * len(sent) if len(forms) == 1 else forms or [0] * len(sent)
        wanted = wanted * len(columns) if len(wanted) == 1 else wanted or [0] * len(columns)
        if len(forms) != len(sent) or len(wanted) != len(columns):
            raise SqlError("08P01", "the forms of values are not as many as the values")
        values = []
        for spot, (form, value) in enumerate(zip(forms, sent, strict=True)):
            given = wire.parameter(
                self._oid(prepared, spot), form == 1, value, prepared.parameters[spot]
            )
            values.append((given.value, given.cast_to))
        if len(self._portals) >= _MOST_PREPARED:
            raise SqlError("53400", f"a session keeps {_MOST_PREPARED} portals at most")
        self._portals[name] = _Portal(prepared, values, [form == 1 for form in wanted])
        self._writer.write(wire.message(b"2"))

    def _found(self, name: str) -> _Prepared:
        if (prepared := self._prepared.get(name)) is None:
            raise SqlError("26000", f"there is no prepared statement {name!r}")
        return prepared

    @staticmethod
    def _oid(prepared: _Prepared, spot: int) -> int:
        """The type of a parameter that the client has named; 0 if it leaves it to us."""
        return prepared.oids[spot] if spot < len(prepared.oids) else 0

    async def _known(self, prepared: _Prepared) -> list[wire.ShownColumn]:
        """The columns of its rows; none for a statement about the session but SHOW."""
        if not prepared.query or is_control(prepared.query):
            prepared.columns = shown_by(prepared.query)
        elif self._state == b"E":
            raise SqlError("25P02", "the transaction has failed: only ROLLBACK ends it")
        else:
            prepared.text = in_duckdbs_words(prepared.query)
            self._open_portal = None
            work = partial(self._reading.describe, prepared.text)
            columns, prepared.parameters = await self._compute(work)
            if "UNKNOWN" in (*prepared.parameters, *(kind for _, kind in columns)):
                prepared.parameters = kinds = [
                    wire.named_type(self._oid(prepared, spot)) or kind
                    for spot, kind in enumerate(prepared.parameters)
                ]
                shown = with_types(prepared.text, kinds, null=True)
                prepared.text = with_types(prepared.text, kinds)
                columns, _ = await self._compute(partial(self._reading.describe, shown))
            prepared.columns = [wire.ShownColumn(*column) for column in columns]
        return prepared.columns

    async def _describe(self, body: wire.Body) -> None:
        which, name = body.take(1), body.text()
        if which == b"S":
            prepared = self._found(name)
            columns = await self._known(prepared)
            oids = [
                self._oid(prepared, spot) or wire.parameter_oid(kind)
                for spot, kind in enumerate(prepared.parameters)
            ]
            count = len(oids)
            self._writer.write(wire.message(b"t", struct.pack(f"!h{count}i", count, *oids)))
            binary: list[bool] = []
        else:
            portal = self._portal(name)
            columns, binary = portal.prepared.columns or [], portal.binary
        self._writer.write(wire.described(columns, binary) if columns else wire.message(b"n"))

    def _portal(self, name: str) -> _Portal:
        if (portal := self._portals.get(name)) is None:
            raise SqlError("34000", f"there is no portal {name!r}: its transaction has ended")
        return portal

    async def _execute(self, body: wire.Body) -> None:
        portal, most = self._portal(body.text()), body.number("i")
        query = portal.prepared.query
        if not query:
            self._writer.write(wire.message(b"I"))
        elif (done := await self._control(query)) is not None:
            self._writer.write(done)
        else:
            await self._send(portal, most)

    async def _send(self, portal: _Portal, most: int) -> None:
        """Sends the rows, or the next `most` of them, and how it ended."""
        columns = portal.prepared.columns or []
        if portal.parts is None:
            query = portal.prepared.text
            selected = wire.selected(query, columns, portal.binary)
            self._open_portal = portal
            portal.parts = await self._compute(
                partial(self._reading.run, query, selected, portal.values)
            )
        elif portal is not self._open_portal and not portal.done:
            raise SqlError("34000", "a later statement has ended the rows of this portal")
        left = most or -1
        while left and not portal.done:
            if not portal.waiting:
                part = await self._compute(partial(next, portal.parts, None))
                if part is None:
                    portal.done = True
                    break
                portal.waiting = wire.rows(part, columns, portal.binary)
            now = portal.waiting if left < 0 else portal.waiting[:left]
            portal.waiting = portal.waiting[len(now) :]
            self._writer.write(b"".join(now))
            portal.sent += len(now)
            left -= len(now) if left > 0 else 0
            await self._drained()
        done = wire.message(b"C", wire.text(f"SELECT {portal.sent}"))
        self._writer.write(done if portal.done else wire.message(b"s"))

    # --- statements about the session -----------------------------------------------------------

    async def _control(self, statement: str) -> bytes | None:
        """What is sent for a statement about the session; None for any other. Raises SqlError."""
        if not is_control(statement):
            return None
        words = words_of(statement)
        first = words[0]
        if self._state == b"E" and first not in ("commit", "end", "rollback", "abort"):
            raise SqlError("25P02", "the transaction has failed: only ROLLBACK ends it")
        tag = first.upper()
        match first:
            case "begin" | "start":
                self._state, tag = b"T", "BEGIN" if first == "begin" else "START TRANSACTION"
            case "rollback" | "abort" if "to" in words:
                self._state, tag = b"T", "ROLLBACK"
            case "commit" | "end" | "rollback" | "abort":
                failed = self._state == b"E" or first in ("rollback", "abort")
                self._state, tag = b"I", "ROLLBACK" if failed else "COMMIT"
                await self._settle()
            case "set":
                await self._set(words[1:])
            case "reset":
                name = "".join(words[1:])
                await self._change({name: self._first_settings[name]} if name != "all" else {})
            case "discard":
                self._prepared.clear()
                await self._change({})
                await self._settle()
                tag = "DISCARD ALL"
            case "deallocate":
                name = words[-1]
                if name == "all":
                    self._prepared.clear()
                elif self._prepared.pop(name, None) is None:
                    raise SqlError("26000", f"there is no prepared statement {name!r}")
            case "close":
                tag = "CLOSE CURSOR"
            case "show":
                name = setting_named(words[1:])
                row = wire.rows([[self._settings[name]]], shown_by(statement), [False])
                return b"".join(row) + wire.message(b"C", wire.text("SHOW"))
        return wire.message(b"C", wire.text(tag))

    async def _set(self, words: list[str]) -> None:
        if words[:1] in (["session"], ["local"]) and words[1:2] != ["characteristics"]:
            words = words[1:]
        if words[:1] in (["transaction"], ["session"]):
            return  # which isolation, and READ WRITE: a write is refused when it comes
        if words[:2] == ["time", "zone"]:
            words = ["timezone", "to", *words[2:]]
        if words[:1] == ["names"]:
            words = ["client_encoding", "to", *words[1:]]
        name, rest = words[0] if words else "", words[1:]
        while rest[:1] == ["."]:
            name, rest = f"{name}.{rest[1]}", rest[2:]
        value = ", ".join(rest[1:] if rest[:1] == ["to"] else rest)
        default = value == "default"
        known = self._first_settings.get(name, "")
        await self._change({name: known if default else value})

    async def _take_settings(self, parameters: dict[str, str]) -> None:
        """The settings with which a client begins."""
        options = re.findall(r"(?:-c\s*|--)([\w.]+)=((?:\\\\.|\S)*)", parameters.get("options", ""))
        given = {name.lower(): value.replace("\\", "") for name, value in options}
        given |= {name.lower(): value for name, value in parameters.items()}
        self._first_settings = {**self._settings}
        zone = given.get("timezone", "utc").lower()
        if zone not in FIXED["timezone"]:
            del given["timezone"]  # drivers send that of their machine, and convert what they get
        chosen = {name: value for name, value in given.items() if name in CHOSEN}
        await self._change(chosen)
        self._first_settings = {**self._settings}

    async def _change(self, given: dict[str, str]) -> None:
        """Changes settings; without any, all are as they were at first. Raises SqlError."""
        settings = {**(self._settings if given else self._first_settings)}
        for name, value in given.items():
            if name not in CHOSEN:
                raise SqlError("42704", f"there is no setting {name!r} that clients choose here")
            value = value.strip("'")
            if name in FIXED and value.lower() not in FIXED[name]:
                raise SqlError("0A000", f"{name} is {settings[name]} here, not {value}")
            if name == "statement_timeout":
                value = str(milliseconds(value))
            if name not in FIXED:
                settings[name] = value
        path = [part.strip().strip('"') for part in settings["search_path"].split(",")]
        look = partial(self._reading.place, path, settings["acid.as_of"], settings)
        await self._compute(look)
        self._settings = settings
        if "application_name" in given:
            self._writer.write(wire.status("application_name", settings["application_name"]))
