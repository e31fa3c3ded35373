"""The object stores that a warehouse may lie in: STORES has all that is known of each (P41)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.base import s3
from acid_platform.errors import AcidError

if TYPE_CHECKING:
    from pyarrow import fs


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A kind of store, which has keys instead of directories, so that nothing can be renamed."""

    name: str
    arrow: str
    """What Arrow calls its file systems."""
    schemes: tuple[str, ...]
    """The schemes of its URIs; all name the same places."""
    open: Callable[[str], tuple[fs.FileSystem, str]] | None = None
    """The file system of a URI, and the path in it; None: Arrow opens it."""
    largest_copy: int = sys.maxsize
    """The most bytes that Arrow has the store copy."""
    arrow_fault: Callable[[str, str], AcidError | None] = lambda _text, _where: None
    """What the text of an OSError says about the store; None if it is no fault of it."""
    hadoop_fault: Callable[[str], AcidError | None] = lambda _text: None
    """What an exception in Spark's text says about it."""
    hadoop_settings: Callable[[Mapping[str, str]], dict[str, str]] = lambda _environment: {}
    """Spark's settings that follow from the environment."""
    connector: str = ""
    """The Java package of Hadoop's connector."""
    packages: tuple[str, ...] = ()
    """What Spark fetches from Maven Central for it, if ACID_SPARK_PACKAGES names the store."""
    left_out: tuple[str, ...] = ()
    """What these packages ask for in vain."""
    places: tuple[str, ...] = ()
    """The environment variables that name a server."""
    keys: tuple[str, ...] = ()
    """Those with credentials."""


STORES = (
    ObjectStore(
        "S3",
        "s3",
        ("s3", "s3a"),  # Hadoop's name for the same
        s3.open_s3,
        s3.LARGEST_COPY,
        s3.arrow_fault,
        s3.hadoop_fault,
        s3.hadoop_settings,
        s3.CONNECTOR,
        s3.PACKAGES,
        s3.LEFT_OUT,
        s3.PLACES,
        s3.KEYS,
    ),
    ObjectStore("Google Cloud Storage", "gcs", ("gs", "gcs")),
    ObjectStore("Azure Blob Storage", "abfs", ("abfs", "abfss")),
)
_BY_ARROW = {store.arrow: store for store in STORES}
BY_SCHEME = {scheme: store for store in STORES for scheme in store.schemes}


def store_of(system: fs.FileSystem) -> ObjectStore | None:
    """The kind of store of a file system; None if it has directories."""
    return _BY_ARROW.get(system.type_name)


def one_spelling(uri: str) -> str:
    """The URI with the first of the schemes that its store has."""
    scheme, separator, rest = uri.partition("://")
    store = BY_SCHEME.get(scheme)
    return f"{store.schemes[0]}{separator}{rest}" if store else uri


def store_fault(error: BaseException, where: str) -> AcidError | None:
    """What an error says about the store rather than about a file; None if it is another error."""
    return next(filter(None, (store.arrow_fault(str(error), where) for store in STORES)), None)


def hadoop_fault(text: str) -> AcidError | None:
    """What an exception of Spark, as a text, says about the store; None if it is another one."""
    return next(filter(None, (store.hadoop_fault(text) for store in STORES)), None)


def without_connector(text: str) -> ObjectStore | None:
    """The store whose connector a Spark session lacks, as its exception says."""
    missing = "ClassNotFoundException: Class {}."
    return next(
        (one for one in STORES if one.connector and missing.format(one.connector) in text), None
    )
