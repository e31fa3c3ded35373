"""Google Cloud Storage: opening it, its errors, and Hadoop's connector (P41).

Credentials are Google's application default ones: the file that GOOGLE_APPLICATION_CREDENTIALS
names, else what `gcloud auth application-default login` left, else the service account of the
machine. STORAGE_EMULATOR_HOST names an emulator, which gets none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from acid_platform.base import s3
from acid_platform.base.paths import parts_of_url, without_credentials
from acid_platform.base.s3 import HADOOP, bucket_in, opening, require_bucket
from acid_platform.errors import AcidError, InvalidDefinition, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from pyarrow import fs

_SECONDS = 6.0
"""For so long Arrow asks again. It has no limit for a silent connection: Google's client gives up
one that has sent nothing for two minutes."""

PLACES = ("STORAGE_EMULATOR_HOST",)
"""GOOGLE_APPLICATION_CREDENTIALS names a file, which executors need not have."""
PACKAGES = (f"org.apache.hadoop:hadoop-gcp:{HADOOP}",)
"""35 MB; it contains what it needs under names of its own."""
CONNECTOR = "org.apache.hadoop.fs.gs"

_STATUS = re.compile(r"google::cloud::Status\((\w+): (.*?)(?: error_info=.*)?\)?$", re.DOTALL)
_OF_FILES = ("NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "OUT_OF_RANGE")
_REFUSED = ("PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT")
_NO_BUCKET = "bucket does not exist"
_ENDED = "Cannot read from a closed stream"
"""What Arrow says where the store failed after the first of several requests of a read."""
_HADOOP_ERROR = re.compile(
    r"com\.google\.[\w.]*(?:StorageException|ResponseException|AuthException|HttpResponseException)"
    r": [^\n]*"
)
_HADOOP_STATUS = re.compile(r"Exception: (\d{3})\b|\"code\" ?: ?(\d{3})\b")


def emulator() -> str:
    """The URL of STORAGE_EMULATOR_HOST, which may lack the scheme; empty if it is not set."""
    host = os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
    return host if not host or "://" in host else f"http://{host}"


def open_google(location: str) -> tuple[fs.FileSystem, str]:
    """The file system and the path `bucket/key` of a URI.

    Asks once for the bucket. Raises InvalidDefinition, StoreRefused, StoreUnavailable.
    """
    bucket = bucket_in(location, "gs://bucket/path", "GOOGLE_APPLICATION_CREDENTIALS")
    with opening(location, arrow_fault):
        who = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
        system = _connected(os.getpid(), bucket, location.partition("://")[0], emulator(), who)
    return system, location.split("://", 1)[1].rstrip("/")


@lru_cache(maxsize=64)
def _connected(
    _process: int, bucket: str, scheme: str, endpoint: str, _credentials: str
) -> fs.GcsFileSystem:
    """One for all files of a bucket that have the same settings: it keeps connections open."""
    from pyarrow import fs

    limit = timedelta(seconds=_SECONDS)
    if endpoint:
        parts = parts_of_url(endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InvalidDefinition(
                f"STORAGE_EMULATOR_HOST is {without_credentials(endpoint)!r}; write"
                " http://host:port or host:port"
            )
        system = fs.GcsFileSystem(
            anonymous=True,
            scheme=parts.scheme,
            endpoint_override=parts.netloc,
            retry_time_limit=limit,
        )
    else:
        system = fs.GcsFileSystem(retry_time_limit=limit)
    advice = "set ACID_WAREHOUSE and STORAGE_EMULATOR_HOST to those that have it"
    require_bucket(system, bucket, f"{scheme}://{bucket}", arrow_fault, advice)
    return system


def arrow_fault(text: str, where: str) -> AcidError | None:
    """What an error of Arrow says about the store; None if it says nothing of it, or of a file."""
    match = _STATUS.search(text)
    if match is None:
        return _failed(where, text) if _ENDED in text else None
    code, said = match[1], match[2].rpartition("with a last message of ")[2]
    if "OAuth2 access token" in said:
        said = said.rpartition("underlying error message was: ")[2]
        return _refused(where, f"there are no credentials: {said}")
    if _NO_BUCKET in said:
        return StoreRefused(f"{where}: {said}; make the bucket, or choose another one")
    if code in _OF_FILES:
        return None
    if code in _REFUSED:
        return _refused(where, said)
    return _failed(where, said)


def hadoop_fault(text: str) -> AcidError | None:
    """What an exception of Hadoop's connector, as Spark prints it, says about the store."""
    match = _HADOOP_ERROR.search(text)
    if match is None:
        return None
    status = _HADOOP_STATUS.search(text, match.start())
    code = int(status[1] or status[2]) if status else 0
    if code in (404, 412) and _NO_BUCKET not in match[0]:
        return None
    if code in (400, 401, 403, 404):
        return _refused("Spark", match[0])
    return _failed("Spark", match[0])


def hadoop_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for the connector, if it is to be fetched: clusters of Google have another
    one of their own."""
    if not {"gs", "gcs"} & {*environment.get("ACID_SPARK_PACKAGES", "").split(",")}:
        return {}
    return {
        "spark.hadoop.fs.gs.impl": f"{CONNECTOR}.GoogleHadoopFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.gs.impl": f"{CONNECTOR}.Gs",
        "spark.hadoop.fs.gs.auth.type": "APPLICATION_DEFAULT",
    }


def log_settings(_uri: str) -> tuple[dict[str, Any], str]:
    """What obstore does not take from the environment as Google's tools do; and the endpoint."""
    endpoint = emulator()
    if not endpoint:
        return {}, ""
    account = {"gcs_base_url": endpoint, "disable_oauth": True}
    empty = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return {"service_account_key": json.dumps(account | empty)}, endpoint


def _refused(where: str, text: str) -> StoreRefused:
    return s3.refused(
        where,
        text,
        "set GOOGLE_APPLICATION_CREDENTIALS to a file with credentials or run `gcloud auth"
        " application-default login`, or grant them the role Storage Object Admin in the bucket",
    )


def _failed(where: str, text: str) -> StoreUnavailable:
    return s3.failed(where, text, "STORAGE_EMULATOR_HOST")
