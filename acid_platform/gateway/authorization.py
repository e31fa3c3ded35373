"""Who may do what: asked before each call, per table and verb; and whose call is answered.

The rules are a file of grants, or a function of the user's own. What a transaction does is asked
when it locks a table or gets a write id, and what it wrote when it commits; its other calls have to
come from the user who opened it."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from acid_platform.base.first_use import Recent
from acid_platform.errors import InvalidDefinition, NotAuthorized
from acid_platform.gateway.logins import ReloadedFile
from acid_platform.gateway.needs import ANY, SEE, CallRow, Need, Verb, needs_of_commit
from acid_platform.gateway.protocol import Call, load
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import TableRecord, WriteReport

THROUGH_GATEWAY = "through the gateway"
"""The description of every transaction that a client of the gateway opened."""


@dataclass(slots=True)
class Caller:
    address: str
    """`host:port`."""
    user: str = ""
    """Who has logged in, by a password or a certificate; empty if nobody has to."""
    txns: set[int] = field(default_factory=set)
    """The transactions for which this connection asked for locks."""

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    def __str__(self) -> str:
        return f"{self.user}@{self.address}" if self.user else self.address


_LOG = logging.getLogger(__name__)
_REMEMBERED = 100_000
"""Transactions and locks whose users are remembered; the metastore is asked about others."""
_PLATFORM, _UNKNOWN = " the platform", " an unknown user"
"""Instead of a user, whose name has no blank."""
_FOR = " for "


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """What an authorizer decides about. `table` is `database.table`, and `*` stands for all."""

    user: str
    """Empty if nobody has to log in."""
    address: str
    verb: str
    table: str
    call: str


Authorizer = Callable[[AccessRequest], bool]


@dataclass(frozen=True, slots=True)
class Grant:
    user: str
    verbs: frozenset[str]
    tables: tuple[tuple[str, str], ...]

    def gives(self, asked: AccessRequest) -> bool:
        database, _, table = asked.table.partition(".")
        return (
            self.user in (ANY, asked.user)
            and asked.verb in self.verbs
            and any(
                first in (ANY, database) and second in (ANY, table) for first, second in self.tables
            )
        )


def parse_grants(text: str, where: str) -> list[Grant]:
    """Lines `USER VERBS TABLES`, such as `ann read,insert sales.*`. Raises InvalidDefinition."""
    return [
        _grant(line.split(), f"{where}, line {number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#")
    ]


def _grant(words: list[str], where: str) -> Grant:
    if len(words) != 3:
        raise InvalidDefinition(
            f"{where}: a line is USER VERBS TABLES, such as: ann read,insert sales.*"
        )
    user, verbs, tables = words
    granted = frozenset([*Verb] if verbs == "all" else verbs.split(","))
    unknown = sorted(granted - {*Verb})
    if unknown:
        raise InvalidDefinition(
            f"{where}: there is no verb {unknown[0]!r}; verbs are {', '.join(Verb)}, or all"
        )
    pairs = []
    for table in tables.lower().split(","):
        database, dot, name = (table if table != ANY else f"{ANY}.{ANY}").partition(".")
        if not (database and dot and name) or any(
            ANY in part and part != ANY for part in (database, name)
        ):
            raise InvalidDefinition(f"{where}: {table!r} is not database.table, database.*, or *")
        pairs.append((database, name))
    return Grant(user, granted, tuple(pairs))


class GrantFile:
    """An authorizer that reads a file, again when it changes. Raises InvalidDefinition."""

    def __init__(self, path: str) -> None:
        self._file = ReloadedFile(path, parse_grants, "the file of grants")
        self._file.content()

    def __call__(self, asked: AccessRequest) -> bool:
        return any(grant.gives(asked) for grant in self._file.content())

    def seen_by(self, user: str) -> frozenset[tuple[str, str]]:
        """The pairs of database and table to which a user has any verb; `*` stands for all."""
        return frozenset(
            pair
            for grant in self._file.content()
            if grant.user in (ANY, user) and not grant.verbs.isdisjoint(SEE)
            for pair in grant.tables
        )


class VisibleNames:
    """What a user may learn of: tables, views and databases by their names (P77)."""

    def __init__(self, table: Callable[[str], bool], database: Callable[[str], bool]) -> None:
        """`table` gets `database.table`."""
        self.table = cache(table)
        self._database = cache(database)

    def database(self, name: str) -> bool:
        """There is always a `default`, whatever is in it."""
        return name == "default" or self._database(name)


ALL_IN_SIGHT = VisibleNames(lambda _table: True, lambda _database: True)


def _sight_of(pairs: frozenset[tuple[str, str]]) -> VisibleNames:
    databases = {database for database, _ in pairs}

    def table(name: str) -> bool:
        database, _, short = name.partition(".")
        return any((first, second) in pairs for first in (database, ANY) for second in (short, ANY))

    return VisibleNames(table, lambda name: name in databases or ANY in databases)


def imported(name: str) -> Authorizer:
    """The function `package.module:function`. Raises InvalidDefinition."""
    module, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    try:
        function: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidDefinition(
            f"acid.gateway.authorizer: {name!r} can't be imported ({error}); give"
            " package.module:function of a module that Python finds"
        ) from error
    if not callable(function):
        raise InvalidDefinition(f"acid.gateway.authorizer: {name!r} is no function")
    return lambda asked: function(asked) is True


class Guard:
    """Asks the authorizer before each call and each commit, and keeps users out of transactions and
    locks of others; nobody gets at those that this platform's own programs opened."""

    def __init__(self, metastore: Metastore, authorizer: Authorizer | None = None) -> None:
        self._metastore, self._authorizer = metastore, authorizer
        self._txns: Recent[int, str] = Recent(_REMEMBERED)
        """The users of transactions."""
        self._locks: Recent[int, str] = Recent(_REMEMBERED)

    def admit(self, row: CallRow, call: Call, caller: Caller) -> None:
        """Raises NotAuthorized unless the caller may make the call; `row` says what it needs.

        A transaction that is opened gets the name of the user who has logged in.
        """
        self.require(row.needs(call.arguments), call.name, caller)
        txns, lock = {*row.transactions(call.arguments)}, row.lock(call.arguments)
        if txns:
            self._require_own(txns, call, caller)
        if lock:
            self._require_own_lock(lock, call, caller)
        if caller.user and call.name == "open_txns":
            request, user = call.arguments[0], caller.user
            # The user of a transaction: who logged in, and for whom, if the engine names somebody.
            others = request.user not in (None, "", user)
            request.user = f"{user}{_FOR}{request.user}" if others else user

    def admit_commit(self, writes: Iterable[WriteReport], caller: Caller) -> None:
        """Raises NotAuthorized unless the caller may commit these writes."""
        if self._authorizer is not None:
            self.require(needs_of_commit(writes), "commit_txn", caller)

    def answered(self, call: Call, caller: Caller, answer: Any) -> None:
        """Remembers whose transactions and locks these are."""
        if call.name == "open_txns":
            for txn in answer.txn_ids:
                self._txns.put(txn, caller.user)
        elif call.name == "lock" and answer.lockid:
            self._locks.put(answer.lockid, caller.user)

    def may_read(self, table: str, caller: Caller) -> bool:
        with suppress(NotAuthorized):
            self.require([Need((Verb.READ,), table)], "SELECT", caller)
            return True
        return False

    def sight(self, caller: Caller) -> VisibleNames:
        """What the caller may learn of; the answers to one call are about one state of the
        rules."""
        if self._authorizer is None:
            return ALL_IN_SIGHT
        if isinstance(self._authorizer, GrantFile):
            return _sight_of(self._authorizer.seen_by(caller.user))
        every: list[str] = []

        def table(name: str) -> bool:
            need = Need(SEE, name)
            return any(self._allows(verb, need, "list", caller) for verb in SEE)

        def database(name: str) -> bool:
            if not every:
                every.extend(table.name for table in self._metastore.tables())
                every.extend(view.name for view in self._metastore.views())
            return table(f"{name}.{ANY}") or any(
                table(known) for known in every if known.startswith(f"{name}.")
            )

        return VisibleNames(table, database)

    def sees_txn(self, row: Mapping[str, Any], caller: Caller) -> bool:
        """Whether the caller learns whose transaction this is: it is the own one, or `admin`."""
        if self._authorizer is None or (caller.user and _owner(row) == caller.user):
            return True
        return self._allows(Verb.ADMIN, Need((Verb.ADMIN,), f"{ANY}.{ANY}"), "list", caller)

    def own(self, caller: Caller) -> list[int] | None:
        """The transactions of a user; None for a client that did not log in: it may mean any."""
        if not caller.user:
            return None
        return [
            row["txnid"] for row in self._metastore.transactions() if _owner(row) == caller.user
        ]

    def require(self, needs: Iterable[Need], call: str, caller: Caller) -> None:
        """Raises NotAuthorized unless the caller may do all of this."""
        for need in dict.fromkeys(needs) if self._authorizer is not None else ():
            if not any(self._allows(verb, need, call, caller) for verb in need.verbs):
                raise NotAuthorized(f"{_user(caller)} may not {_words(need)} ({call})")

    def _allows(self, verb: Verb, need: Need, call: str, caller: Caller) -> bool:
        assert self._authorizer is not None
        try:
            return self._authorizer(
                AccessRequest(caller.user, caller.address, verb.value, need.table, call)
            )
        except Exception as error:  # the function is not ours, and a failure must not let in
            _LOG.exception("the authorizer failed for %s", caller)
            raise NotAuthorized(
                f"{_user(caller)} may not {_words(need)}: the authorizer failed:"
                f" {type(error).__name__}: {error}"
            ) from error

    def _require_own(self, txns: Collection[int], call: Call, caller: Caller) -> None:
        """One question to the metastore at most, however many transactions the call names."""
        owners = {txn: owner for txn in txns if (owner := self._txns.get(txn)) is not None}
        if len(owners) < len(txns):
            for row in self._metastore.transactions():
                if row["txnid"] in txns:
                    owners[row["txnid"]] = _owner(row)
                    self._txns.put(row["txnid"], _owner(row))
        for txn, owner in sorted(owners.items()):  # one that is not there: the call will say so
            if owner == _PLATFORM:
                raise NotAuthorized(
                    f"transaction {txn} was not opened through the gateway, so no client of it may"
                    f" use it ({call.name}); end it with `acid sql`: ABORT TRANSACTIONS {txn}"
                )
            if caller.user and owner != caller.user:
                raise NotAuthorized(
                    f"{_user(caller)} may not use transaction {txn}, which another user opened"
                    f" ({call.name})"
                )

    def _require_own_lock(self, lock: int, call: Call, caller: Caller) -> None:
        owner = self._locks.get(lock)
        if owner is None:
            held = next(
                (entry for entry in self._metastore.call(ops.GetLocks()) if entry.id == lock), None
            )
            if held is None:
                return
            if held.txn:
                self._require_own({held.txn}, call, caller)
                self._locks.put(lock, caller.user)
                return
            owner = _UNKNOWN
        if caller.user and owner != caller.user:
            raise NotAuthorized(
                f"{_user(caller)} may not use lock {lock}, which another user asked for"
                f" ({call.name}); lock again"
            )


def _owner(row: Mapping[str, Any]) -> str:
    """Who logged in when the transaction of this row was opened."""
    if row["description"] != THROUGH_GATEWAY:
        return _PLATFORM
    return str(row["user"]).partition(_FOR)[0] if row["user"] else ""


def _user(caller: Caller) -> str:
    return f"user {caller.user}" if caller.user else f"the client at {caller.host}"


def _words(need: Need) -> str:
    verbs = need.verbs[:1] if need.verbs == SEE else need.verbs
    return f"{' or '.join(verb.value for verb in verbs)} {need.table}"


LOCATIONS = "acid.gateway.locations"
"""The setting with the directories outside of the warehouse in which clients may make tables."""
T = TypeVar("T")


class Waits(Exception):
    """A call has to wait, and needs no thread meanwhile: `again` returns its answer, or raises this
    again, after `pause` seconds."""

    def __init__(self, pause: float, again: Callable[[], Any]) -> None:
        super().__init__(pause)
        self.pause, self.again = pause, again


class CallHandler:
    """`call_table` says which methods of its subclasses answer which calls, from any thread."""

    def __init__(
        self,
        metastore: Metastore,
        lock_wait: float = 2.0,
        authorizer: Authorizer | None = None,
        locations: str = "",
    ) -> None:
        """`lock_wait`: for how many seconds a lock request is held back before the client learns
        that it waits. `authorizer` None allows everything. `locations`: see LOCATIONS, separated by
        commas. Raises UnsupportedStatement if thriftpy2 is missing."""
        load()
        self._metastore = metastore
        self._lock_wait = lock_wait
        self._locations = locations
        self._guard = Guard(metastore, authorizer)
        self._present = threading.local()

    @property
    def _caller(self) -> Caller:
        """Whose call this thread answers."""
        caller: Caller = self._present.caller
        return caller

    @property
    def _sight(self) -> VisibleNames:
        """What the present caller may learn of."""
        return self._guard.sight(self._caller)

    def _record(self, database: str, name: str) -> TableRecord:
        """Raises NoSuchTable."""
        return self._metastore.table(f"{database}.{name}")


def limited(values: Sequence[T], limit: int | None) -> list[T]:
    """The first `limit` of them; None and negative numbers stand for all."""
    return list(values if limit is None or limit < 0 else values[:limit])
