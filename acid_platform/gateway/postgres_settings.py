"""What clients of PostgreSQL set and show, which statements are about the session alone, and the
codes of errors."""

from __future__ import annotations

import re

from acid_platform.errors import (
    AcidError,
    InvalidExpression,
    NoSuchTable,
    NotAuthorized,
    OutOfMemory,
    ReadOnlyTxn,
    SnapshotExpired,
    Transient,
    UnknownColumn,
    UnsupportedStatement,
)
from acid_platform.gateway.postgres_messages import ShownColumn
from acid_platform.gateway.postgres_text import words_of

STATES = {401: "28P01", 403: "28000", 429: "53300", 503: "57P03"}
"""PostgreSQL's codes for why a client is refused."""
CODES: tuple[tuple[type[Exception], str], ...] = (
    (NotAuthorized, "42501"),
    (NoSuchTable, "42P01"),
    (UnknownColumn, "42703"),
    (OutOfMemory, "53200"),
    (ReadOnlyTxn, "25006"),
    (UnsupportedStatement, "0A000"),
    (InvalidExpression, "22000"),
    (SnapshotExpired, "72000"),
    (Transient, "57P03"),
    (AcidError, "XX000"),
)
SETTINGS = {
    "application_name": "",
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "default_transaction_isolation": "repeatable read",
    "default_transaction_read_only": "on",
    "extra_float_digits": "1",
    "integer_datetimes": "on",
    "intervalstyle": "postgres",
    "is_superuser": "off",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "lc_collate": "C",
    "search_path": '"$user", default',
    "server_encoding": "UTF8",
    "server_version": "15.0 (acid)",
    "server_version_num": "150000",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "timezone": "UTC",
    "transaction_isolation": "repeatable read",
    "transaction_read_only": "on",
    "acid.as_of": "",
}
TOLD = ("server_version", "server_encoding", "client_encoding", "standard_conforming_strings")
ALSO_TOLD = {
    "application_name": "application_name",
    "DateStyle": "datestyle",
    "TimeZone": "timezone",
    "integer_datetimes": "integer_datetimes",
    "IntervalStyle": "intervalstyle",
    "is_superuser": "is_superuser",
    "default_transaction_read_only": "default_transaction_read_only",
}
CHOSEN = {
    "application_name", "datestyle", "extra_float_digits", "intervalstyle", "search_path",
    "statement_timeout", "acid.as_of", "client_min_messages", "lock_timeout", "jit",
    "idle_in_transaction_session_timeout", "client_encoding", "timezone", "bytea_output",
    "row_security", "default_transaction_isolation", "geqo", "xmloption", "lc_monetary",
}  # fmt: skip
FIXED = {"client_encoding": ("utf8", "unicode", "utf-8"), "timezone": ("utc", "etc/utc", "gmt")}
"""Settings that have one value here, and how clients write it; the zone of others is not ours."""


class SqlError(Exception):
    """The statement is answered with this error."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code, self.why = code, why


_CONTROL = {
    "begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release", "set", "reset",
    "discard", "deallocate", "close", "unlisten",
}  # fmt: skip
_UNITS = {"": 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}


def is_control(statement: str) -> bool:
    """Whether it is about the session alone."""
    found = re.match(r"[a-zA-Z]+", statement)
    first = found[0].lower() if found else ""
    if first == "show":
        return setting_named(words_of(statement)[1:]) in SETTINGS
    return first in _CONTROL


def setting_named(words: list[str]) -> str:
    name = "".join(words)
    known = {"transactionisolationlevel": "transaction_isolation", "timezone": "timezone"}
    return known.get(name, name)


def shown_by(statement: str) -> list[ShownColumn]:
    """The column of SHOW; none for any other statement about the session."""
    words = words_of(statement)
    show = words[:1] == ["show"]
    return [ShownColumn(setting_named(words[1:]), "VARCHAR")] if show else []


def milliseconds(text: str) -> int:
    found = re.fullmatch(r"(\d{1,9})\s*(ms|s|min|h|)", text.strip())
    if found is None:
        raise SqlError("22023", f"statement_timeout: {text!r} is no time such as 5000, 5s or 5min")
    return int(found[1]) * _UNITS[found[2]]
