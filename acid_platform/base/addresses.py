"""Addresses that may hold a password, which no error shows."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from acid_platform.errors import InvalidDefinition

_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


def without_credentials(text: str) -> str:
    """The address without what stands before its `@`: a user, perhaps with a password."""
    return re.sub(r"(^|//)(?:(?!//).)*@", r"\1***@", text, flags=re.DOTALL)


def parts_of_url(url: str, *, any_path: bool = False) -> SplitResult:
    """The parts of an address. Raises InvalidDefinition, without what may be a password: one that
    is not written as addresses need it would stand in the host, the port or the path.

    `any_path`: an `@` behind the host is part of a key, as in a bucket.
    """
    try:
        parts = urlsplit(url)
        # Of several hosts, which PostgreSQL takes, each has a port of its own.
        if "," not in parts.netloc:
            _ = parts.port
        wrong = _NO_ESCAPE.search(parts.netloc) is not None or (
            not any_path and "@" in parts.path + parts.query + parts.fragment
        )
    except ValueError:
        wrong = True
    if wrong:
        raise InvalidDefinition(
            f"{without_credentials(url)} is no address: write / # ? @ and other signs in a user's"
            " name or password as %2F %23 %3F %40, and a port as a number"
        ) from None
    return parts
