"""Objects below a prefix of a store, through obstore.

The settings are those of each cloud's tools, from the environment: obstore reads most of them, and
base/object_store.py knows the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from obstore import exceptions
from obstore.store import from_url

from acid_platform.base.object_store import BY_SCHEME, one_spelling
from acid_platform.errors import InvalidDefinition, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion
    from obstore.store import ObjectStore

_SMALL = 1 << 20
"""Larger objects have more time than the patience of whoever puts them."""
_LONG = timedelta(minutes=10)
_REFUSED = re.compile(
    r"status code: 40[13]\b|NoSuchBucket|ContainerNotFound|InvalidAccessKeyId|SignatureDoesNotMatch"
    r"|ExpiredToken|InvalidToken|RequestTimeTooSkewed"
)


class StorePrefix:
    """A prefix of a bucket. No method tries anything again, but `upload` its parts."""

    def __init__(self, url: str, seconds: float) -> None:
        """`seconds`: how long a request of a small object, or a silence of the store, may take."""
        settings, endpoint = BY_SCHEME[url.partition("://")[0]].log_settings(url)
        self.place = url + (f" at {endpoint}" if endpoint else "")
        wait = timedelta(seconds=seconds)

        def store(retries: int = 0, **limits: timedelta) -> ObjectStore:
            options: Any = {
                "config": settings or None,
                "client_options": {"connect_timeout": wait, "allow_http": True, **limits},
                "retry_config": {"max_retries": retries, "retry_timeout": _LONG},
            }
            try:
                return from_url(one_spelling(url), **options)
            except exceptions.BaseError as error:
                raise InvalidDefinition(f"{url}: {_first_line(error)}; see docs/grow.md") from error

        self._small = store(timeout=wait)
        self._large = store(retries=5, timeout=_LONG)
        self._reads = store(timeout=_LONG, read_timeout=wait)

    def create(self, name: str, data: bytes) -> None:
        with self._faults():
            self._put(name, data, "create")

    def replace(self, name: str, data: bytes, version: Any) -> None:
        with self._faults():
            self._put(name, data, version)

    def _put(self, name: str, data: bytes, mode: Any) -> PutResult:
        store = self._small if len(data) <= _SMALL else self._large
        return obstore.put(store, name, data, mode=mode, use_multipart=False)

    def get(self, name: str) -> tuple[bytes, object]:
        with self._faults():
            result = obstore.get(self._reads, name)
            version = _version(result.meta)
            return bytes(result.bytes()), version

    def names(self, after: str = "") -> list[str]:
        with self._faults():
            pages = obstore.list(self._reads, offset=after or None)
            return sorted(each["path"] for page in pages for each in page if each["path"] > after)

    def delete(self, names: Sequence[str]) -> None:
        try:
            with self._faults():
                obstore.delete(self._small, names)
        except FileNotFoundError:
            # Some stores say so; then the others are deleted one by one.
            for name in names:
                with suppress(FileNotFoundError), self._faults():
                    obstore.delete(self._small, name)

    def upload(self, name: str, file: Path) -> None:
        with self._faults():
            obstore.put(self._large, name, file)

    def download(self, name: str, file: Path) -> None:
        with self._faults(), file.open("wb") as written:
            result = obstore.get(self._reads, name)
            for chunk in result:
                written.write(chunk)
            if written.tell() != result.meta["size"]:
                raise StoreUnavailable(f"{self.place}: {name} was cut off")

    def check(self, name: str) -> bool:
        data, _ = self.get(name)
        try:
            self.create(name, data)
            return False
        except FileExistsError:
            pass
        other: UpdateVersion = {"e_tag": '"0123456789abcdef0123456789abcdef"', "version": "1"}
        try:
            self.replace(name, data, other)
            return False
        except FileExistsError:
            return True

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raises the errors of Objects instead of obstore's."""
        try:
            yield
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            raise FileExistsError(_first_line(error)) from error
        except (exceptions.BaseError, FileNotFoundError, ValueError) as error:
            text = _first_line(error)
            refused = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
            if isinstance(error, refused) or _REFUSED.search(text):
                raise StoreRefused(
                    f"{self.place}: the object store refuses it: {text}; check the bucket and the"
                    " credentials, see docs/grow.md"
                ) from error
            if isinstance(error, FileNotFoundError):
                raise FileNotFoundError(text) from error
            raise StoreUnavailable(f"{self.place}: {text}") from error


def _version(meta: ObjectMeta) -> UpdateVersion:
    """S3 and Azure go by the ETag, Google by the version. obstore takes no None."""
    version: UpdateVersion = {}
    if meta["e_tag"] is not None:
        version["e_tag"] = meta["e_tag"]
    if meta["version"] is not None:
        version["version"] = meta["version"]
    return version


def _first_line(error: BaseException) -> str:
    """What obstore says before the structure of the error, with the answer of the server."""
    return " ".join(str(error).partition("\n\nDebug source")[0].split())[:600]
