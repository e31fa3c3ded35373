"""Emulators of Google Cloud Storage and of Azure Blob Storage, behind a server that watches.

fake-gcs-server speaks Google's JSON API, through which Arrow goes, and only a part of the XML API,
through which obstore goes: `XmlApi` translates that. Azurite speaks the API of blobs, not that of
the hierarchical namespace. `make lab-test-stores ARGS="fake-gcs-server azurite"` fetches both.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import responses
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qs, quote, urlsplit
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

from acid_platform.base import azure_storage, google_storage
from tests.stores import as_google, real
from tests.stores.server import (
    Answer,
    Headers,
    Protocol,
    StoreServer,
    Watched,
    asked,
    headers_of,
    passing_on,
    read,
    serve,
)

if TYPE_CHECKING:
    import pytest

Query = dict[str, list[str]]

# --- Google Cloud Storage -------------------------------------------------------------------------


def _google_operation(environ: dict[str, Any], query: Query) -> str:
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    if "/rewriteTo/" in path or "/moveTo/" in path:
        return "COPY"
    if path.startswith("/upload/"):
        if method == "POST":
            return "BEGIN" if query.get("uploadType") == ["resumable"] else "PUT"
        more = environ.get("HTTP_CONTENT_RANGE", "").endswith("/*")
        return "PART" if more else "PUT"
    if re.fullmatch("/storage/v1/b/[^/]+/o", path) or "list-type" in query:
        return "LIST"
    if method == "GET" and path.startswith("/storage/") and query.get("alt") != ["media"]:
        return "HEAD"
    return str(method)


def _google_path(path: str, query: Query) -> str:
    named = re.fullmatch("/(?:upload/|download/)?storage/v1/b/([^/]+)(?:/o/?(.*))?", path)
    if named is None:
        return path
    return f"/{named[1]}/{(named[2] or '') + query.get('name', [''])[0]}"


def _google_answer(status: int, code: str) -> tuple[Headers, bytes]:
    error = {"message": "injected", "reason": code, "domain": "global"}
    body = {"error": {"code": status, "message": "injected", "errors": [error]}}
    return [("Content-Type", "application/json")], json.dumps(body).encode()


GOOGLE = Protocol(
    _google_operation,
    _google_path,
    {
        "SlowDown": (503, "backendError"),
        "AccessDenied": (403, "forbidden"),
        "InvalidAccessKeyId": (401, "authError"),
        "SignatureDoesNotMatch": (401, "authError"),
        "ExpiredToken": (401, "authError"),
        "InternalError": (500, "internalError"),
    },
    _google_answer,
    frozenset({"HTTP_X_GOOG_IF_GENERATION_MATCH"}),
)


def _encrypted(headers: Headers) -> Headers:
    """With the place of an upload as Google names it."""
    host = f"//{as_google.HOST}/"
    return [(name, value.replace(f"http:{host}", f"https:{host}")) for name, value in headers]


class XmlApi:
    """Answers the requests of Google's XML API by those of its JSON API, and gives everybody a
    token; passes others on.

    A client that asks how far an upload got is told so, as by Google: the emulator takes the
    question for the end of an empty file.
    """

    def __init__(self, server: SplitResult) -> None:
        self._server = server
        self._passed = passing_on(server)
        self._uploads: dict[str, Answer] = {}
        """The last answer to each."""
        self._parts: dict[str, dict[int, bytes]] = {}
        """Of each upload by the XML API."""

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        if path == "/token":
            read(environ)
            start("200 OK", [("Content-Type", "application/json")])
            return [b'{"access_token": "tests", "token_type": "Bearer", "expires_in": 3600}']
        if environ["REQUEST_METHOD"] == "PUT" and "upload_id" in query:
            status, told, body = self._upload(query["upload_id"][0], environ)
            start(f"{status} {responses[status]}", told)
            return [body]
        if move := re.fullmatch("(/storage/v1/b/[^/]+)(/o/.+)/moveTo(/o/.+)", path):
            status, told, body = self._moved(*(quote(part) for part in move.groups()), environ)
            start(f"{status} {responses[status]}", told)
            return [body]
        if path.startswith("/upload/"):
            return self._passed(environ, lambda status, told: start(status, _encrypted(told)))
        if re.match("/(?:download/)?storage/v1/|/batch/", path):
            return self._passed(environ, start)
        headers, content = headers_of(environ), read(environ)
        bucket, _, key = path.lstrip("/").partition("/")
        status, told, body = self._answer(
            environ["REQUEST_METHOD"], bucket, key, query, headers, content
        )
        start(f"{status} {responses[status]}", told)
        return [body]

    def _moved(self, bucket: str, old: str, new: str, environ: dict[str, Any]) -> Answer:
        """The emulator knows no move: a copy, and a removal of what was copied."""
        read(environ)
        name = bucket.removeprefix("/storage/v1")
        target = f"{bucket}{old}/rewriteTo{name}{new}"
        kind = {"content-type": "application/json"}
        status, told, body = asked(self._server, "POST", target, kind, b"{}")
        if status == 200:
            asked(self._server, "DELETE", f"{bucket}{old}", {})
            told = [pair for pair in told if pair[0].lower() != "content-length"]
            body = json.dumps(json.loads(body)["resource"]).encode()
        return status, told, body

    def _upload(self, number: str, environ: dict[str, Any]) -> Answer:
        headers, content = headers_of(environ), read(environ)
        if headers.get("content-range") == "bytes */*":
            return self._uploads.get(number, (308, [], b""))
        answer = asked(self._server, "PUT", environ["REQUEST_URI"], headers, content)
        if answer[0] in (200, 308):
            self._uploads[number] = answer
        return answer

    def _answer(
        self,
        method: str,
        bucket: str,
        key: str,
        query: Query,
        headers: dict[str, str],
        content: bytes,
    ) -> Answer:
        objects, name = f"/storage/v1/b/{bucket}/o", quote(key, safe="")
        if not key:
            return self._listed(objects, query)
        if method in ("GET", "HEAD"):
            wanted = {"range": headers["range"]} if "range" in headers else {}
            target = f"/download{objects}/{name}?alt=media"
            status, told, body = asked(self._server, method, target, wanted)
            if status != 404 or method == "HEAD":
                return status, told, body
            there = asked(self._server, "GET", f"/storage/v1/b/{bucket}", {})[0] == 200
            code = "NoSuchKey" if there else "NoSuchBucket"
            return status, [], f"<Error><Code>{code}</Code></Error>".encode()
        if method == "DELETE":
            status, _, body = asked(self._server, method, f"{objects}/{name}", {})
            return (204, [], b"") if status == 200 else (status, [], body)
        if "uploads" in query:
            number = f"upload-{len(self._parts)}"
            self._parts[number] = {}
            told = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId>"
            return 200, [], f"{told}</InitiateMultipartUploadResult>".encode()
        if "partNumber" in query:
            part = int(query["partNumber"][0])
            self._parts[query["uploadId"][0]][part] = content
            return 200, [("ETag", f'"{part}"')], b""
        whole = "uploadId" in query
        if whole:
            parts = self._parts.pop(query["uploadId"][0])
            content = b"".join(parts[part] for part in sorted(parts))
        condition = headers.get("x-goog-if-generation-match")
        condition = f"&ifGenerationMatch={condition}" if condition else ""
        target = f"/upload{objects}?uploadType=media&name={name}{condition}"
        kind = {"content-type": "application/octet-stream"}
        status, _, body = asked(self._server, "POST", target, kind, content)
        if status != 200:
            return status, [], body
        made = json.loads(body)
        tag = f"<CompleteMultipartUploadResult><ETag>{made['etag']}</ETag>"
        body = f"{tag}</CompleteMultipartUploadResult>".encode() if whole else b""
        return 200, [("ETag", f'"{made["etag"]}"'), ("x-goog-generation", made["generation"])], body

    def _listed(self, objects: str, query: Query) -> Answer:
        prefix, after = (query.get(name, [""])[0] for name in ("prefix", "start-after"))
        target = f"{objects}?prefix={quote(prefix, safe='')}&startOffset={quote(after, safe='')}"
        status, _, body = asked(self._server, "GET", target, {})
        if status != 200:
            return status, [], b"<Error><Code>NoSuchBucket</Code></Error>"
        found = [one for one in json.loads(body).get("items", ()) if one["name"] > after]
        contents = "".join(
            f"<Contents><Key>{escape(one['name'])}</Key><Size>{one['size']}</Size>"
            f"<LastModified>{one['updated']}</LastModified><ETag>{one['etag']}</ETag></Contents>"
            for one in found
        )
        listed = f"<ListBucketResult>{contents}</ListBucketResult>"
        return 200, [("Content-Type", "application/xml")], listed.encode()


class GoogleServer(StoreServer):
    """fake-gcs-server. Raises real.Unavailable."""

    scheme = "gs"
    other_scheme = "gcs"
    hidden = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT")
    names_credentials = "GOOGLE_APPLICATION_CREDENTIALS"
    names_place = "STORAGE_EMULATOR_HOST"
    gives_up_silence = False
    tells_types = False
    first_file = 3

    def __init__(self) -> None:
        self._running = ExitStack()
        emulator = self._running.enter_context(real.running("fake-gcs-server", fetch=False))
        super().__init__("tests.stores.clouds", self.scheme, emulator)

    def close(self) -> None:
        super().close()
        self._running.close()

    def environment_at(self, url: str) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": url}

    def make_bucket(self, name: str) -> None:
        body = json.dumps({"name": name}).encode()
        target = f"{self.url}/storage/v1/b?project=tests"
        urlopen(Request(target, body, {"Content-Type": "application/json"}), timeout=20).close()

    def keys(self, bucket: str, below: str = "") -> list[str]:
        listed = json.loads(self.ask(f"/storage/v1/b/{bucket}/o?prefix={quote(below, safe='')}"))
        return sorted(one["name"] for one in listed.get("items", ()))

    @contextmanager
    def on_spark(self, directory: Path) -> Iterator[dict[str, str]]:
        credentials = directory / "credentials.json"
        credentials.write_text(json.dumps(as_google.CREDENTIALS))
        with as_google.java_options(self.url, directory) as options:
            given = os.environ.get("ACID_SPARK_JAVA_OPTIONS", "")
            yield {
                "ACID_SPARK_PACKAGES": self.scheme,
                "ACID_SPARK_JAVA_OPTIONS": f"{given} {options}",
                "GOOGLE_APPLICATION_CREDENTIALS": str(credentials),
            }

    @staticmethod
    def hurry(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(google_storage, "_SECONDS", 2.0)
        google_storage._connected.cache_clear()


# --- Azure Blob Storage ---------------------------------------------------------------------------


def _azure_operation(environ: dict[str, Any], query: Query) -> str:
    method, (comp, *_) = environ["REQUEST_METHOD"], query.get("comp", [""])
    if method == "PUT" and "HTTP_X_MS_COPY_SOURCE" in environ:
        return "COPY"
    of_container = "restype" in query
    named = {"block": "PART", "batch": "DELETE_MANY", "list": "LIST", "lease": "LEASE"}.get(comp)
    return named or ("HEAD" if of_container and method == "GET" else str(method))


def _azure_path(path: str, _query: Query) -> str:
    """Without the account."""
    return "/" + path.lstrip("/").partition("/")[2]


def _azure_answer(status: int, code: str) -> tuple[Headers, bytes]:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"
    return [("Content-Type", "application/xml"), ("x-ms-error-code", code)], body.encode()


AZURE = Protocol(
    _azure_operation,
    _azure_path,
    {
        "SlowDown": (503, "ServerBusy"),
        "AccessDenied": (403, "AuthorizationPermissionMismatch"),
        "InvalidAccessKeyId": (403, "AuthenticationFailed"),
        "SignatureDoesNotMatch": (403, "AuthenticationFailed"),
        "ExpiredToken": (401, "InvalidAuthenticationInfo"),
        "InternalError": (500, "InternalError"),
    },
    _azure_answer,
    frozenset({"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"}),
)


class AzureServer(StoreServer):
    """Azurite. Raises real.Unavailable."""

    scheme = "abfss"
    other_scheme = "abfs"
    hidden = azure_storage.KEYS + azure_storage.PLACES
    names_credentials = "AZURE_STORAGE_ACCOUNT_KEY"
    names_place = "AZURE_STORAGE_ACCOUNT_NAME"
    tells_types = False
    signs_conditions = True

    def __init__(self) -> None:
        self._running = ExitStack()
        emulator = self._running.enter_context(real.running("azurite", fetch=False))
        super().__init__("tests.stores.clouds", self.scheme, emulator)

    def close(self) -> None:
        super().close()
        self._running.close()

    def environment_at(self, url: str) -> dict[str, str]:
        fields = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": real.ACCOUNT,
            "AccountKey": real.ACCOUNT_KEY,
            "BlobEndpoint": f"{url}/{real.ACCOUNT}",
        }
        text = "".join(f"{name}={value};" for name, value in fields.items())
        return {"AZURE_STORAGE_CONNECTION_STRING": text}

    @contextmanager
    def on_spark(self, directory: Path) -> Iterator[dict[str, str]]:
        settings = {
            "fs.abfss.impl": f"{azure_storage.CONNECTOR}.AzureBlobFileSystem",
            "fs.azure.abfs.endpoint": urlsplit(self.url).netloc,
            "fs.azure.account.hns.enabled": "false",
            "fs.azure.always.use.https": "false",
            "fs.azure.fns.account.service.type": "BLOB",
            "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
        }
        lines = (
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in settings.items()
        )
        text = f"<configuration>{''.join(lines)}</configuration>"
        (directory / "core-site.xml").write_text(text)
        yield {
            "ACID_SPARK_PACKAGES": self.scheme,
            "HADOOP_CONF_DIR": str(directory),
            "AZURE_STORAGE_ACCOUNT_NAME": real.ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": real.ACCOUNT_KEY,
        }

    def uri(self, bucket: str, path: str) -> str:
        return f"{self.scheme}://{bucket}@{real.ACCOUNT}.dfs.core.windows.net/{path}"

    def _system(self) -> Any:
        from pyarrow import fs

        place: dict[str, Any] = {}
        for service in ("blob", "dfs"):
            place[f"{service}_storage_authority"] = urlsplit(self.url).netloc
            place[f"{service}_storage_scheme"] = "http"
        return fs.AzureFileSystem(real.ACCOUNT, account_key=real.ACCOUNT_KEY, **place)

    def make_bucket(self, name: str) -> None:
        self._system().create_dir(name)

    def keys(self, bucket: str, below: str = "") -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        found = self._system().get_file_info(FileSelector(bucket, recursive=True))
        keys = [one.path.removeprefix(f"{bucket}/") for one in found if one.type is FileType.File]
        return sorted(key for key in keys if key.startswith(below))

    @staticmethod
    def hurry(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(azure_storage, "_RETRIES", 2)
        patch.setattr(azure_storage, "_SECONDS", 3.0)
        patch.setattr(azure_storage, "_CONNECT_SECONDS", 1.0)
        azure_storage._connected.cache_clear()


SERVERS: dict[str, type[StoreServer]] = {"google": GoogleServer, "azure": AzureServer}
"""By the parameter of the tests."""


def main(kind: str, emulator: str) -> None:
    server = urlsplit(emulator)
    if kind == GoogleServer.scheme:
        serve(Watched(XmlApi(server), GOOGLE))
    else:
        serve(Watched(passing_on(server), AZURE))


if __name__ == "__main__":
    main(*sys.argv[1:])
