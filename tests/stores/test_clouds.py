"""Google's and Azure's stores without a server: URIs, settings, and what the texts of errors mean.

The texts are those that Arrow, obstore and Hadoop's connectors give.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from acid_platform import InvalidDefinition, SparkMisconfigured, StoreRefused, StoreUnavailable
from acid_platform.base import azure_storage, google_storage, object_store
from acid_platform.base.location import Location
from acid_platform.base.object_store import BY_SCHEME, STORES
from acid_platform.engine.spark.failures import of_files
from acid_platform.engine.spark.jvm import executor_variables, store_settings
from acid_platform.errors import AcidError
from acid_platform.metastore.log.objects import objects_at
from acid_platform.storage.files import Files
from tests.stores.real import ROOT

KEY = "c29tZSBrZXk="
STRING = (
    "DefaultEndpointsProtocol=http;AccountName=mine;AccountKey=" + KEY + ";"
    "BlobEndpoint=http://127.0.0.1:1/mine"
)
HERE = "abfss://c@mine.dfs.core.windows.net/w"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for store in STORES:
        for name in (*store.places, *store.keys, "GOOGLE_APPLICATION_CREDENTIALS"):
            monkeypatch.delenv(name, raising=False)


# --- errors ---------------------------------------------------------------------------------------

_GOOGLE = "google::cloud::Status({}: Permanent error, with a last message of {} error_info={{}})"
_NO_TOKEN = (
    "Could not create a OAuth2 access token to authenticate the request. Learn more about Google"
    " Cloud authentication. The underlying error message was: Cannot open credentials file /none"
)
_AZURE = (
    "Generic MicrosoftAzure error: Error performing GET https://mine/c/k in 3ms"
    " - Server returned non-2xx status code: {1} Text: <?xml?><Error><Code>{0}</Code></Error>"
)
_ASKED = "Generic MicrosoftAzure error: Error performing GET https://mine/c in 3ms - HTTP error: "

SAID = [
    (_GOOGLE.format("PERMISSION_DENIED", "no storage.objects.get access"), StoreRefused),
    (_GOOGLE.format("UNAUTHENTICATED", "Invalid Credentials"), StoreRefused),
    (_GOOGLE.format("NOT_FOUND", "The specified bucket does not exist."), StoreRefused),
    (_GOOGLE.format("NOT_FOUND", "No such object: b/k"), None),
    (_GOOGLE.format("FAILED_PRECONDITION", "the object exists"), None),
    ("Unknown error: " + _GOOGLE.format("UNKNOWN", _NO_TOKEN), StoreRefused),
    (_GOOGLE.format("UNAVAILABLE", "CURL error [7]=Could not connect"), StoreUnavailable),
    (_GOOGLE.format("DEADLINE_EXCEEDED", "Retry policy exhausted"), StoreUnavailable),
    (_AZURE.format("AuthenticationFailed", 403), StoreRefused),
    (_AZURE.format("AuthorizationPermissionMismatch", 403), StoreRefused),
    (_AZURE.format("KeyBasedAuthenticationNotPermitted", 403), StoreRefused),
    (_AZURE.format("ContainerNotFound", 404), StoreRefused),
    (_AZURE.format("LeaseIdMissing", 412), StoreRefused),
    (_AZURE.format("BlobImmutableDueToPolicy", 409), StoreRefused),
    (_AZURE.format("BlobArchived", 409), StoreRefused),
    (_AZURE.format("BlobNotFound", 404), None),
    (_AZURE.partition(" Text")[0].format("", 404), None),
    (_AZURE.format("ServerBusy", 503), StoreUnavailable),
    (f"{_ASKED}error sending request", StoreUnavailable),
    (f"{_ASKED}operation timed out", StoreUnavailable),
    ("Generic MicrosoftAzure error: Error performing token request: Error", StoreRefused),
    ("[Errno 2] No such file or directory: '/disk/t'", None),
    ("ORC: Malformed ORC file. Invalid postscript.", None),
]


@pytest.mark.parametrize(("text", "meant"), SAID)
def test_P41_what_arrow_says_of_the_store_is_no_damaged_file(
    text: str, meant: type[AcidError] | None
) -> None:
    fault = object_store.store_fault(OSError(text), "b/t/bucket_00000")
    assert (None if fault is None else type(fault)) is meant
    if fault is not None:
        assert str(fault).startswith("b/t/bucket_00000: ")
        assert "; " in str(fault) or ": " in str(fault).partition(": ")[2], "what to do next"


def test_P41_errors_name_what_to_set() -> None:
    for text, named in (
        (_GOOGLE.format("UNKNOWN", _NO_TOKEN), "GOOGLE_APPLICATION_CREDENTIALS"),
        (_GOOGLE.format("UNAVAILABLE", "no"), "STORAGE_EMULATOR_HOST"),
        (_AZURE.format("AuthenticationFailed", 403), "AZURE_STORAGE_ACCOUNT_KEY"),
        (_AZURE.format("AuthorizationFailure", 403), "Storage Blob Data Contributor"),
        (_AZURE.format("LeaseIdMissing", 412), "release the lease"),
        (_AZURE.format("BlobArchived", 409), "rehydrate"),
    ):
        assert named in str(object_store.store_fault(OSError(text), "b/k"))


_READ = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file gs://b/t/bucket_00000. \n"
_SHADED = "com.google.cloud.hadoop.repackaged.ossgcs.com.google.cloud.storage.StorageException"
_ABFS = "Caused by: java.nio.file.AccessDeniedException: Operation failed: "


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (f"Caused by: {_SHADED}: 403 Forbidden\nGET https://storage.googleapis.com", StoreRefused),
        (f"Caused by: {_SHADED}: 503 Service Unavailable", StoreUnavailable),
        (f'{_ABFS}"Server failed", 403, GET, https://mine.dfs.core.windows.net/c', StoreRefused),
        (
            'AbfsRestOperationException: Operation failed: "Busy", 503, HEAD, https://h/c',
            StoreUnavailable,
        ),
        ('UnsupportedFileSystemException: No FileSystem for scheme "gs"', SparkMisconfigured),
        (
            "ClassNotFoundException: Class org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem"
            " not found",
            SparkMisconfigured,
        ),
    ],
)
def test_P41_what_hadoop_says_of_google_and_azure(said: str, meant: type[AcidError]) -> None:
    assert type(of_files(RuntimeError(_READ + said))) is meant


# --- URIs and settings ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("gs:///path", "gs://bucket/path"),
        ("gs://bucket/w?project=p", "gs://bucket/path"),
        ("abfss://container/w", "abfss://container@account"),
        ("az://container/w", "abfss://container@account"),
        ("abfss://mine.dfs.core.windows.net/c/w", "abfss://container@account"),
        ("abfss://c@mine.blob.core.windows.net/w", "abfss://container@account"),
        ("abfss://c@mine.dfs.core.windows.net/w?sv=1", "abfss://container@account"),
    ],
)
def test_what_a_uri_cant_say_is_refused(uri: str, reason: str) -> None:
    with pytest.raises(InvalidDefinition, match=reason):
        Files.of(uri)


def test_P10_a_container_may_stand_before_its_account_and_a_password_may_not() -> None:
    assert Location.of(HERE, "/m").warehouse == HERE
    for wrong in ("abfss://c:secret@mine.dfs.core.windows.net/w", "gs://me@bucket/w"):
        with pytest.raises(InvalidDefinition) as refused:
            Location.of(wrong, "/m")
        assert "secret" not in str(refused.value)


def test_a_path_of_an_account_has_its_uri_again() -> None:
    files = Files(None, "abfss", "mine.dfs.core.windows.net")  # type: ignore[arg-type]
    assert files.uri("c/w/db.db/t") == f"{HERE}/db.db/t"
    assert files.uri("c") == "abfss://c@mine.dfs.core.windows.net"
    assert Files(None, "gs").uri("b/w") == "gs://b/w"  # type: ignore[arg-type]


def test_spellings_of_one_place() -> None:
    assert object_store.one_spelling("gcs://b/w") == "gs://b/w"
    assert object_store.one_spelling(HERE.replace("abfss", "abfs")) == HERE
    assert {"s3", "s3a", "gs", "gcs", "abfss", "abfs", "az"} == {*BY_SCHEME}


def test_the_account_is_that_of_azures_tools() -> None:
    told = azure_storage.access({"AZURE_STORAGE_CONNECTION_STRING": STRING})
    assert told == azure_storage.Access("mine", KEY, "", "http://127.0.0.1:1/mine")
    assert KEY not in repr(told)
    plain = {"AZURE_STORAGE_ACCOUNT": "mine", "AZURE_STORAGE_KEY": KEY}
    assert azure_storage.access(plain) == azure_storage.Access("mine", KEY)
    shared = {"AZURE_STORAGE_ACCOUNT_NAME": "mine", "AZURE_STORAGE_SAS_TOKEN": "sv=1"}
    assert azure_storage.access(shared) == azure_storage.Access("mine", sas="sv=1")
    with pytest.raises(InvalidDefinition, match="AccountName"):
        azure_storage.access({"AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true"})


def test_a_key_of_another_account_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "other")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    with pytest.raises(InvalidDefinition, match=r"account mine.* key of other"):
        Files.of(HERE)


def test_an_address_of_an_emulator_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "ftp://host")
    with pytest.raises(InvalidDefinition, match="STORAGE_EMULATOR_HOST"):
        Files.of("gs://bucket/w")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", STRING.replace("1/mine", "1/other"))
    with pytest.raises(InvalidDefinition, match="BlobEndpoint"):
        Files.of(HERE)


def test_P41_credentials_that_cant_be_read_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(StoreRefused, match=r"none\.json.*GOOGLE_APPLICATION_CREDENTIALS"):
        Files.of("gs://bucket/w")
    (tmp_path / "none.json").write_text("{}")
    google_storage._connected.cache_clear()
    with pytest.raises(StoreRefused, match=r"none\.json.*gcloud auth"):
        Files.of("gs://bucket/w")


@pytest.mark.more
def test_P41_no_credentials_of_azure_are_named() -> None:
    program = (
        "from acid_platform.errors import StoreRefused\n"
        "from acid_platform.storage.files import Files\n"
        f"try: Files.of({HERE!r})\n"
        "except StoreRefused as error: print(error)"
    )
    nobody = {"PATH": "", "IDENTITY_ENDPOINT": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=nobody, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "no credentials" in done.stdout, done.stdout
    assert "AZURE_STORAGE_ACCOUNT_KEY" in done.stdout


def test_a_log_takes_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
    assert objects_at("gs://b/log", 1).place == "gs://b/log at http://127.0.0.1:1"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", STRING)
    for url in (f"{HERE}/log", "az://c/log"):
        assert objects_at(url, 1).place == f"{url} at http://127.0.0.1:1/mine"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", STRING.replace(KEY, "no key"))
    with pytest.raises(InvalidDefinition, match="Invalid Access Key"):
        objects_at("az://c/log", 1)
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    with pytest.raises(InvalidDefinition, match="AZURE_STORAGE_ACCOUNT_NAME"):
        objects_at("az://c/log", 1)
    with pytest.raises(InvalidDefinition, match=r"http://.*s3://"):
        objects_at("http://c/log", 1)


# --- Spark ----------------------------------------------------------------------------------------


def test_spark_gets_the_connectors_that_are_asked_for() -> None:
    told = store_settings({"ACID_SPARK_PACKAGES": "gs,abfss"})
    wanted = (*google_storage.PACKAGES, *azure_storage.PACKAGES)
    assert told["spark.jars.packages"] == ",".join(wanted)
    assert told["spark.hadoop.fs.gs.impl"].endswith(".GoogleHadoopFileSystem")
    assert told["spark.hadoop.fs.gs.auth.type"] == "APPLICATION_DEFAULT"
    assert "com.microsoft.azure:azure-storage" in told["spark.jars.excludes"].split(",")
    assert not [name for name in store_settings({}) if ".gs." in name or "azure" in name]


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        (
            {"AZURE_STORAGE_ACCOUNT_NAME": "mine", "AZURE_STORAGE_KEY": KEY},
            {
                "account.auth.type.mine.dfs.core.windows.net": "SharedKey",
                "account.key.mine.dfs.core.windows.net": "${env.AZURE_STORAGE_KEY}",
            },
        ),
        (
            {"AZURE_STORAGE_ACCOUNT_NAME": "mine", "AZURE_STORAGE_SAS_TOKEN": KEY},
            {
                "account.auth.type.mine.dfs.core.windows.net": "SAS",
                "sas.fixed.token.mine.dfs.core.windows.net": "${env.AZURE_STORAGE_SAS_TOKEN}",
            },
        ),
        (
            {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "i", "AZURE_CLIENT_SECRET": KEY},
            {
                "account.auth.type": "OAuth",
                "account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2."
                "ClientCredsTokenProvider",
                "account.oauth2.client.endpoint": "https://login.microsoftonline.com/t/oauth2/token",
                "account.oauth2.client.id": "i",
                "account.oauth2.client.secret": "${env.AZURE_CLIENT_SECRET}",
            },
        ),
        (
            {"AZURE_STORAGE_ACCOUNT_NAME": "mine"},
            {
                "account.auth.type": "OAuth",
                "account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2."
                "MsiTokenProvider",
            },
        ),
        ({}, {}),
    ],
)
def test_sparks_settings_of_azure_hold_no_secret(
    given: dict[str, str], settings: dict[str, str]
) -> None:
    told = azure_storage.hadoop_settings(given)
    assert told == {f"spark.hadoop.fs.azure.{name}": value for name, value in settings.items()}
    assert KEY not in str(told)
    secret = [name for name, value in given.items() if value == KEY]
    passed = executor_variables(given)
    assert {f"spark.executorEnv.{name}": KEY for name in secret}.items() <= passed.items()
    assert not [name for name in executor_variables(given, keys=False) if "KEY" in name]
