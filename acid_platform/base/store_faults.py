"""What the modules of the object stores share: the bucket of a URI, and what errors say (P41)."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from acid_platform.base.paths import parts_of_url
from acid_platform.errors import AcidError, InvalidDefinition, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyarrow import fs


def bucket_in(location: str, form: str, settings: str) -> str:
    """The bucket that a URI of the form `form` names.

    Raises InvalidDefinition if there is none, or more than a bucket and a path: the metastore
    stores URIs, so `settings` belong into the environment.
    """
    parts = parts_of_url(location, any_path=True)
    if not parts.netloc:
        raise InvalidDefinition(f"{location} names no bucket: write {form}")
    if parts.query or "@" in parts.netloc:
        raise InvalidDefinition(
            f"{location}: write {form} alone, and set {settings} in the environment"
        )
    return parts.netloc


@contextmanager
def opening(location: str, fault: Callable[[str, str], AcidError | None]) -> Iterator[None]:
    """Errors of Arrow in the block become what `fault`, the store's `arrow_fault`, says."""
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ArrowException) as error:
        said = fault(str(error), location)
        if said is None:
            raise
        raise said from error


def require_bucket(
    system: fs.FileSystem,
    bucket: str,
    location: str,
    fault: Callable[[str, str], AcidError | None],
    advice: str,
) -> None:
    """Raises StoreRefused if there is no such bucket: Arrow would make it with the first directory.

    Credentials that are good for objects only may not look at it; then it is believed to be there.
    """
    from pyarrow.fs import FileType

    try:
        found = system.get_file_info(bucket).type
    except OSError as error:
        if isinstance(fault(str(error), location), StoreRefused):
            return
        raise
    if found is FileType.NotFound:
        raise StoreRefused(f"{location}: there is no such bucket {bucket}: make it, or {advice}")


def refused(where: str, text: str, advice: str) -> StoreRefused:
    return StoreRefused(f"{where}: the object store refuses it: {_short(text)}; {advice}")


def failed(where: str, text: str, advice: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{where}: the object store failed again and again: {_short(text)}; try again later, and"
        f" check the network and {advice} if it stays so"
    )


def _short(text: str) -> str:
    """One line of it."""
    return re.sub(r"\s+", " ", text).strip()[:700]
