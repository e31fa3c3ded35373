"""The object stores that a warehouse may lie in: STORES has all that is known of each (P41)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acid_platform.base import azure_storage, google_storage, s3
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
    accounts: bool = False
    """Whether its URIs are `scheme://container@host/path`: the host is no part of the path."""
    lists_directories: bool = True
    """Whether Arrow's listings have the directories that only the keys of files make."""
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
    older_packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What it fetches instead, by the version of its Hadoop."""
    left_out: tuple[str, ...] = ()
    """What these packages ask for in vain."""
    log_settings: Callable[[str], tuple[dict[str, Any], str]] = lambda _uri: ({}, "")
    """What obstore, which writes logs, does not take from the environment by itself, for a URI; and
    the address of the server, if it is not the cloud's."""
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
        largest_copy=s3.LARGEST_COPY,
        arrow_fault=s3.arrow_fault,
        hadoop_fault=s3.hadoop_fault,
        hadoop_settings=s3.hadoop_settings,
        connector=s3.CONNECTOR,
        packages=s3.PACKAGES,
        older_packages=s3.OLDER_PACKAGES,
        left_out=s3.LEFT_OUT,
        log_settings=s3.log_settings,
        places=s3.PLACES,
        keys=s3.KEYS,
    ),
    ObjectStore(
        "Google Cloud Storage",
        "gcs",
        ("gs", "gcs"),
        google_storage.open_google,
        lists_directories=False,
        arrow_fault=google_storage.arrow_fault,
        hadoop_fault=google_storage.hadoop_fault,
        hadoop_settings=google_storage.hadoop_settings,
        connector=google_storage.CONNECTOR,
        packages=google_storage.PACKAGES,
        log_settings=google_storage.log_settings,
        places=google_storage.PLACES,
    ),
    ObjectStore(
        "Azure Blob Storage",
        "py::azure",
        ("abfss", "abfs", "az"),
        azure_storage.open_azure,
        accounts=True,
        arrow_fault=azure_storage.arrow_fault,
        hadoop_fault=azure_storage.hadoop_fault,
        hadoop_settings=azure_storage.hadoop_settings,
        connector=azure_storage.CONNECTOR,
        packages=azure_storage.PACKAGES,
        left_out=azure_storage.LEFT_OUT,
        log_settings=azure_storage.log_settings,
        places=azure_storage.PLACES,
        keys=azure_storage.KEYS,
    ),
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

    def missing(store: ObjectStore) -> bool:
        unknown = [f'No FileSystem for scheme "{scheme}"' for scheme in store.schemes]
        lacking = (f"ClassNotFoundException: Class {store.connector}.", *unknown)
        return bool(store.connector) and any(phrase in text for phrase in lacking)

    return next(filter(missing, STORES), None)
