"""S3, and stores that speak its protocol: opening them, their errors, and Hadoop's connector; and
what the modules of all object stores share: the bucket of a URI, what errors say (P41).

The settings are those of every AWS tool: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or
AWS_DEFAULT_REGION, and whatever AWS's chain of credentials finds (AWS_ACCESS_KEY_ID, a profile, the
role of the machine). URIs carry none of them, since the metastore stores URIs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from acid_platform.base.paths import parts_of_url, without_credentials
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


_SECONDS = 30.0
"""How long a connection may be silent."""
_CONNECT_SECONDS = 5.0
_RETRIES = 8
"""With Arrow's pauses of 25 ms, 50 ms, 100 ms, …, a store may fail for about 6 seconds."""
LARGEST_COPY = 5 << 30
"""The most bytes that S3 copies by one COPY, and Arrow sends no other."""

PLACES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_CREDENTIALS = (*KEYS, "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")

_ERROR = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during (\w+)")
_REFUSED = re.compile(
    "ACCESS_DENIED|ACCESS_KEY|SIGNATURE|CREDENTIAL|TOKEN|UNRECOGNIZED_CLIENT|EXPIRED|NOT_SIGNED_UP"
    "|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|RequestTimeTooSkewed"
)
_HADOOP_ERROR = re.compile(
    r"(?:(?:software\.amazon\.awssdk|org\.apache\.hadoop\.fs\.s3a)\.[\w.]+Exception: "
    r"|java\.nio\.file\.AccessDeniedException: s3a?://)[^\n]*"
)
_STATUS = re.compile(r"Status Code: (\d+)")

HADOOP = "3.5.0"
"""The version of the Hadoop client in the newest PySpark, and of the connectors."""
_SDK = "2.35.4"
"""The version of Amazon's SDK that this connector was made for."""
_SDK_PARTS = tuple(
    f"software.amazon.awssdk:{name}:{_SDK}" for name in ("s3", "s3-transfer-manager", "sts")
)
PACKAGES = (f"org.apache.hadoop:hadoop-aws:{HADOOP}", *_SDK_PARTS)
"""20 MB instead of 700: the connector asks for the SDK's bundle, which has every service of AWS."""
OLDER_PACKAGES = {"3.4.1": ("org.apache.hadoop:hadoop-aws:3.4.1", *_SDK_PARTS)}
"""Newer connectors call what that Hadoop, of Spark 4.0, does not have."""
LEFT_OUT = ("software.amazon.awssdk:bundle",)
CONNECTOR = "org.apache.hadoop.fs.s3a"


def address(environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The endpoint and the region that the environment names; empty if it names none."""
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    return endpoint, environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""


def open_s3(location: str) -> tuple[fs.FileSystem, str]:
    """The file system and the path `bucket/key` of a URI.

    Connects only to learn the bucket's region, if nothing says it. Raises InvalidDefinition,
    StoreRefused, StoreUnavailable.
    """
    bucket = bucket_in(location, "s3://bucket/path", "AWS_ENDPOINT_URL, AWS_REGION and credentials")
    who = tuple(os.environ.get(name, "") for name in _CREDENTIALS)
    with opening(location, arrow_fault):
        system = _connected(os.getpid(), bucket, *address(), who)
    return system, location.split("://", 1)[1].rstrip("/")


@lru_cache(maxsize=64)
def _connected(
    _process: int, bucket: str, endpoint: str, region: str, _credentials: tuple[str, ...]
) -> fs.S3FileSystem:
    """One for all files of a process that have the same settings: it keeps connections open."""
    from pyarrow import fs

    parts = parts_of_url(endpoint)
    if endpoint and (parts.scheme not in ("http", "https") or not parts.netloc):
        raise InvalidDefinition(
            f"AWS_ENDPOINT_URL is {without_credentials(endpoint)!r}; write https://host or http://host:port"
        )
    if not region:
        region = "us-east-1" if endpoint else str(fs.resolve_s3_region(bucket))
    return fs.S3FileSystem(
        region=region,
        scheme=parts.scheme or "https",
        endpoint_override=f"{parts.netloc}{parts.path}".rstrip("/") or None,
        request_timeout=_SECONDS,
        connect_timeout=_CONNECT_SECONDS,
        allow_delayed_open=True,  # a small file is one PUT
        retry_strategy=fs.AwsDefaultS3RetryStrategy(max_attempts=_RETRIES),
    )


def arrow_fault(text: str, where: str) -> AcidError | None:
    """What an error of Arrow says about the store; None if it says nothing of S3 or of a file.

    A missing file is no fault of the store; a missing bucket is.
    """
    match = _ERROR.search(text)
    if match is None:
        if "not found" in text and "Bucket" in text:
            return StoreRefused(f"{where}: {text}; make the bucket, or choose another one")
        return None
    code, status, operation = match[1], int(match[2] or 0), match[3]
    if status == 400 and operation.startswith("Head"):  # its answer has no text: an expired token
        status = 401
    if code == "NO_SUCH_BUCKET" or "NoSuchBucket" in text:
        return StoreRefused(
            f"{where}: there is no such bucket: {text}; make it, or set ACID_WAREHOUSE and"
            " AWS_ENDPOINT_URL to those that have it"
        )
    if status in (401, 403) or _REFUSED.search(code) or _REFUSED.search(text):
        return _refused(where, text)
    if status == 404 or code in ("NO_SUCH_KEY", "RESOURCE_NOT_FOUND"):
        return None
    return _failed(where, text)


def hadoop_fault(text: str) -> AcidError | None:
    """What an exception of Hadoop's connector, as Spark prints it, says about the store."""
    match = _HADOOP_ERROR.search(text)
    if match is None:
        return None
    exception, where = match[0], "Spark"
    status = int(code[1]) if (code := _STATUS.search(exception)) else 0
    if status == 404 and "NoSuchBucket" not in exception:
        return None
    refused = (
        status in (400, 401, 403, 404)
        or "NoAuthWithAWS" in exception
        or "UnknownStore" in exception
    )
    if refused or "AccessDenied" in exception:
        return _refused(where, exception)
    return _failed(where, exception)


def hadoop_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for the connector, and for the server of the environment."""
    settings = {
        # The warehouse's URIs begin with s3, whatever Hadoop calls its connector.
        "spark.hadoop.fs.s3.impl": f"{CONNECTOR}.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": f"{CONNECTOR}.S3A",
    }
    endpoint, region = address(environment)
    if endpoint:
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
        ssl = str(urlsplit(endpoint).scheme == "https").lower()
        settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] = ssl
        region = region or "us-east-1"
    if region:
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings


def log_settings(uri: str) -> tuple[dict[str, Any], str]:
    """What obstore does not take from the environment as other AWS tools do; and the endpoint."""
    endpoint, region = address()
    settings: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    if not region and not endpoint:
        from pyarrow import fs

        try:
            region = str(fs.resolve_s3_region(urlsplit(uri).netloc))
        except OSError as error:
            raise StoreUnavailable(
                f"{uri}: the region of the bucket is unknown: {error}"
            ) from error
    settings["region"] = region or "us-east-1"
    return settings | _profile(), endpoint


def _profile() -> dict[str, str]:
    """The keys of AWS_PROFILE, unless the environment has keys; obstore does not read profiles."""
    import configparser

    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    path = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials"
    profiles = configparser.RawConfigParser()
    profiles.read(path)
    profile = os.environ.get("AWS_PROFILE") or "default"
    if not profiles.has_section(profile):
        return {}
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    return {name: profiles[profile][name] for name in names if name in profiles[profile]}


def _refused(where: str, text: str) -> StoreRefused:
    return refused(
        where,
        text,
        "renew or correct the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,"
        " AWS_SESSION_TOKEN or AWS_PROFILE), or grant them access to the bucket",
    )


def _failed(where: str, text: str) -> StoreUnavailable:
    return failed(where, text, "AWS_ENDPOINT_URL")
