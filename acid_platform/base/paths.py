"""Paths that people write, at every door: one function makes them absolute (P70).

Addresses may hold a password, which no error shows.
"""

from __future__ import annotations

import os
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


def user_path(text: str | os.PathLike[str], start: str | os.PathLike[str] = "") -> str:
    """An absolute local path, or a URI of another file system as it is (P70).

    A path may be relative to `start`, by default the current directory, begin with `~`, be
    `file:///path`, and end with a slash. Raises InvalidDefinition for a file of another machine,
    and for what would be a new file or directory of a name that nobody means.
    """
    expanded = os.path.expanduser(os.fspath(text))
    path = absolute(expanded, os.fspath(start))
    if (odd := _ODD.fullmatch(expanded)) and not is_uri(expanded) and not os.path.lexists(path):
        [why] = [_WHY[kind] for kind, found in odd.groupdict().items() if found]
        written = without_credentials(os.fspath(text))
        raise InvalidDefinition(
            f"{written!r} is refused as a path, since {why}; if the name is meant, make it first"
        )
    return path


_ODD = re.compile(r"(?P<user>~.*)|(?P<variable>\$(?:\w|\{).*)|(?P<blank>\s.*|.*\s)", re.DOTALL)
_WHY = {
    "user": "there is no such user",
    "variable": "variables are replaced by a shell, and not here: write what it stands for",
    "blank": "it begins or ends with a blank",
}


def absolute(location: str, start: str = "") -> str:
    """A path without `.` and `..`, or a URI; a relative path starts at the current directory.

    As for the operating system, `..` goes up from where a symbolic link leads. Other links stay:
    who changes one to point elsewhere means to move what is behind it. Raises InvalidDefinition for
    a file of another machine.
    """
    if is_uri(location):
        scheme, _, rest = location.partition("://")
        return f"{scheme.lower()}://{rest.rstrip('/')}"
    path = os.path.join(os.getcwd(), start, local_path(location))
    before, up, after = f"{path}/".rpartition("/../")
    if up:
        path = os.path.join(os.path.realpath(f"{before}/.."), after)
    return f"/{os.path.normpath(path).lstrip('/')}"


def local_path(location: str) -> str:
    """The path in `file:/x`, `file:///x` or `file://localhost/x`, and every path as it is.

    Nothing in it is decoded: Hive, Spark and Trino take locations verbatim. Raises
    InvalidDefinition for a file of another machine, and a relative path behind `file:`.
    """
    if not _is_file(location):
        return location
    path = location[len("file:") :]
    if path.startswith("//"):
        host, slash, rest = path[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            host = host.rpartition("@")[2]
            raise InvalidDefinition(
                f"file://{host}/… is a file of the machine {host}; write file:///path"
            )
        path = slash + rest
    if not path.startswith("/"):
        raise InvalidDefinition(f"{location} has no path from the root; write file:///path")
    return path


def is_uri(location: str) -> bool:
    """Whether it names a file system other than the local one."""
    return "://" in location and not location.startswith("/") and not _is_file(location)


def as_uri(location: str) -> str:
    """The location with a scheme, which an absolute path gets."""
    return location if "://" in location else f"file://{location}"


def _is_file(location: str) -> bool:
    return location[:5].lower() == "file:"


_NO_NAMES = frozenset({"", ".", ".."})


def leads_out(path: str) -> bool:
    """Whether a relative path has an empty part, `.` or `..`, and may name what is not below."""
    return not _NO_NAMES.isdisjoint(path.split("/"))
