"""Azure Blob Storage and Data Lake Storage: opening them, their errors, Hadoop's connector (P41).

Credentials are those of Azure's tools: AZURE_STORAGE_CONNECTION_STRING, or a key or a SAS of the
account, else a service principal (AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET), a
workload identity, or the managed identity of the machine. Files and logs go through obstore.

URIs are Hadoop's: `abfss://container@account.dfs.core.windows.net/path`, with TLS. `wasb` is gone
from Hadoop 3.5. `az://container/path` names no account: only a log may lie there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from acid_platform.base import s3
from acid_platform.base.paths import parts_of_url
from acid_platform.base.s3 import HADOOP, opening
from acid_platform.errors import AcidError, InvalidDefinition, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from pyarrow import fs

FORM = "abfss://container@account.dfs.core.windows.net/path"
_DOMAIN = ".dfs.core.windows.net"
_STRING = "AZURE_STORAGE_CONNECTION_STRING"
_NAMES = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
_ACCOUNT_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY")
_SAS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_PRINCIPAL = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
PLACES = _NAMES
KEYS = (_STRING, *_ACCOUNT_KEYS, *_SAS, *_PRINCIPAL)

PACKAGES = (f"org.apache.hadoop:hadoop-azure:{HADOOP}",)
LEFT_OUT = ("com.microsoft.azure:azure-storage",)
"""What wasb needed."""
CONNECTOR = "org.apache.hadoop.fs.azurebfs"

_SECONDS = 30.0
"""How long a request may be silent."""
_CONNECT_SECONDS = 5.0
_RETRIES = 6
"""With pauses of 100 ms, 200 ms, 400 ms, …: for about 6 seconds."""

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_TOKEN = re.compile("token request|Azure CLI|Invalid Access Key|SAS")
_NO_CONTAINER = re.compile("ContainerNotFound|FilesystemNotFound|container does not exist")
_OF_FILES = re.compile(
    "BlobNotFound|PathNotFound|ResourceNotFound|BlobAlreadyExists|PathAlreadyExists"
    "|ConditionNotMet|InvalidRange|DirectoryNotEmpty"
)
_REFUSED = re.compile("Auth|NoAuthentication|AccountIsDisabled|PublicAccess|InvalidUri|OutOfRange")
_HELD = {
    "Lease": "somebody holds a lease on it: break or release the lease",
    "Immutable": "a policy or a legal hold keeps it: remove that from the container",
    "BlobArchived": "a lifecycle rule has moved it to the archive tier: rehydrate it, and remove"
    " the rule",
}
_HADOOP_ERROR = re.compile(r"(?:\w+\.)*\w+Exception: (?:[^\n]*?: )?Operation failed: [^\n]*")
_HADOOP_STATUS = re.compile(r'", (\d{3}), (?:GET|HEAD|PUT|POST|PATCH|DELETE)')


@dataclass(frozen=True, slots=True)
class Access:
    """What the environment says of an account; all is empty if it says nothing."""

    account: str = ""
    key: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    endpoint: str = ""
    """The URL of its blobs, if that is not Azure's."""


def access(environment: Mapping[str, str] = os.environ) -> Access:
    """Raises InvalidDefinition for a connection string that names no account."""

    def first(names: tuple[str, ...]) -> str:
        return next(filter(None, map(environment.get, names)), "")

    text = environment.get(_STRING)
    if not text:
        return Access(first(_NAMES), first(_ACCOUNT_KEYS), first(_SAS))
    fields = dict(part.strip().partition("=")[::2] for part in text.split(";") if part.strip())
    if "AccountName" not in fields:
        raise InvalidDefinition(
            f"{_STRING} names no account: write it as the portal shows it, AccountName=…;"
            "AccountKey=…, with BlobEndpoint=http://host:port/account for an emulator"
        )
    return Access(
        fields["AccountName"],
        fields.get("AccountKey", ""),
        fields.get("SharedAccessSignature", ""),
        fields.get("BlobEndpoint", "").rstrip("/"),
    )


def open_azure(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of the account, and the path `container/key` of a URI.

    Asks once for the container. Raises InvalidDefinition, StoreRefused, StoreUnavailable.
    """
    parts = parts_of_url(location, any_path=True)
    account = (parts.hostname or "").removesuffix(_DOMAIN)
    if not parts.username or not re.fullmatch("[a-z0-9]{3,24}", account):
        raise InvalidDefinition(f"{location} names no container and account: write {FORM}")
    if parts.query or parts.password or f"{account}{_DOMAIN}" != parts.hostname:
        raise InvalidDefinition(
            f"{location}: write {FORM} alone, and set the credentials in the environment"
        )
    given = access()
    if given.account not in ("", account) and (given.key or given.sas):
        raise InvalidDefinition(
            f"{location} is in the account {account}, and the environment has the key of"
            f" {given.account}: set {_NAMES[0]} and the key to those of {account}, or neither, for"
            " an identity that may use both"
        )
    identity = tuple(os.environ.get(name, "") for name in _PRINCIPAL)
    with opening(location, arrow_fault):
        system = _connected(os.getpid(), parts.username, account, given, identity)
    return system, f"{parts.username}{parts.path}".rstrip("/")


@lru_cache(maxsize=64)
def _connected(
    _process: int, container: str, account: str, given: Access, _identity: tuple[str, ...]
) -> fs.FileSystem:
    """One for all files of a container that have the same settings: it keeps connections open."""
    if given.endpoint and not re.fullmatch(rf"https?://[^/]+/{account}", given.endpoint):
        raise InvalidDefinition(
            f"{_STRING}: BlobEndpoint is {given.endpoint!r}; write http://host:port/{account}"
        )
    try:
        from acid_platform.base.object_files import files_at
    except ModuleNotFoundError as error:
        raise InvalidDefinition(
            "a warehouse in Azure needs obstore: pip install acid-platform[bucket]"
        ) from error
    where = f"abfss://{container}@{account}{_DOMAIN}"
    pauses = {
        "init_backoff": timedelta(seconds=0.1),
        "max_backoff": timedelta(seconds=4),
        "base": 2,
    }
    options: Any = {
        "config": _settings(account, given),
        "client_options": {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            "timeout": timedelta(minutes=10),
            "read_timeout": timedelta(seconds=_SECONDS),
        },
        "retry_config": {
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(minutes=10),
            "backoff": pauses,
        },
    }
    return files_at("azure", container, where, options)


def _settings(account: str, given: Access) -> dict[str, str]:
    """What obstore does not take from the environment as Azure's tools do."""
    settings = {"account_name": account, "endpoint": given.endpoint}
    if given.key:
        settings["account_key"] = given.key
    elif given.sas:
        settings["sas_key"] = given.sas
    return {name: value for name, value in settings.items() if value}


def arrow_fault(text: str, where: str) -> AcidError | None:
    """What an error of Arrow says about the store; None if it says nothing of it, or of a file."""
    if "Error performing" not in text and "MicrosoftAzure" not in text:
        return None
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    code, said = (found[1] if (found := _CODE.search(text)) else ""), text
    if _NO_TOKEN.search(text):
        return _refused(where, f"there are no credentials: {said}")
    if _NO_CONTAINER.search(said):
        return StoreRefused(
            f"{where}: there is no such bucket: make the container, or choose another one"
        )
    for word, advice in _HELD.items():
        if word in code:
            return StoreRefused(f"{where}: {code}: {advice}")
    if _OF_FILES.search(code):
        return None
    if status in (401, 403) or _REFUSED.search(code):
        return _refused(where, said)
    if status in (404, 412):
        return None
    return _failed(where, said)


def hadoop_fault(text: str) -> AcidError | None:
    """What an exception of Hadoop's connector, as Spark prints it, says about the store."""
    match = _HADOOP_ERROR.search(text)
    if match is None:
        return None
    status = int(code[1]) if (code := _HADOOP_STATUS.search(match[0])) else 0
    if status in (404, 409, 412) and not _NO_CONTAINER.search(match[0]):
        return None
    if status in (400, 401, 403, 404):
        return _refused("Spark", match[0])
    return _failed("Spark", match[0])


def hadoop_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for the account. Hadoop reads the secrets from the environment of each
    process, so that no command line has them; it can't read a connection string."""
    given = access(environment)
    host = f"{given.account}{_DOMAIN}"

    def secret(names: tuple[str, ...]) -> str:
        return next((f"${{env.{name}}}" for name in names if environment.get(name)), "")

    settings: dict[str, str] = {}
    if given.account and (key := secret(_ACCOUNT_KEYS)):
        settings = {f"account.auth.type.{host}": "SharedKey", f"account.key.{host}": key}
    elif given.account and (sas := secret(_SAS)):
        settings = {f"account.auth.type.{host}": "SAS", f"sas.fixed.token.{host}": sas}
    elif all(environment.get(name) for name in _PRINCIPAL):
        tenant, client, hidden = _PRINCIPAL
        settings = {
            "account.auth.type": "OAuth",
            "account.oauth.provider.type": f"{CONNECTOR}.oauth2.ClientCredsTokenProvider",
            "account.oauth2.client.endpoint": "https://login.microsoftonline.com/"
            f"{environment[tenant]}/oauth2/token",
            "account.oauth2.client.id": environment[client],
            "account.oauth2.client.secret": secret((hidden,)),
        }
    elif given.account:
        settings = {
            "account.auth.type": "OAuth",
            "account.oauth.provider.type": f"{CONNECTOR}.oauth2.MsiTokenProvider",
        }
    return {f"spark.hadoop.fs.azure.{name}": value for name, value in settings.items()}


def log_settings(uri: str) -> tuple[dict[str, Any], str]:
    """What obstore does not take from the environment as Azure's tools do; and the endpoint."""
    given = access()
    account = (urlsplit(uri).hostname or "").removesuffix(_DOMAIN) if "@" in uri else given.account
    if not account:
        raise InvalidDefinition(f"{uri} names no account: set {_NAMES[0]}, or write {FORM}")
    return _settings(account, given), given.endpoint


def _refused(where: str, text: str) -> StoreRefused:
    return s3.refused(
        where,
        text,
        f"correct the credentials ({_NAMES[0]} with {_ACCOUNT_KEYS[0]}, {_STRING}, or an identity),"
        " or grant them the role Storage Blob Data Contributor in the container",
    )


def _failed(where: str, text: str) -> StoreUnavailable:
    return s3.failed(where, text, f"the name of the account ({_NAMES[0]})")
