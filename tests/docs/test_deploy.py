"""The files of deploy/ are YAML, and name commands, options, variables and images that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from dagster._cli import cli as dagster
from dagster._core.instance.config import dagster_instance_config
from dagster._daemon.cli import cli as dagster_daemon
from dagster_webserver.cli import cli as dagster_webserver

from acid_platform.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    [*(ROOT / "deploy").glob("*.yaml"), *(ROOT / "deploy" / "kubernetes").glob("*.yaml")]
)
_DAGSTER = {
    "dagster": dagster,
    "dagster-daemon": dagster_daemon,
    "dagster-webserver": dagster_webserver,
}
_OF_PODS = {"POD_IP", "POD_NAME"}


def _nodes(value: Any) -> Iterator[Any]:
    """The value and everything in it."""
    yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from _nodes(part)


def _documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def _command_lines(file: Path) -> list[list[str]]:
    """The words after `acid` of every command."""
    words = [node for node in _nodes(_documents(file)) if isinstance(node, list)]
    return [line[1:] for line in words if line[:1] == ["acid"]]


def _require(line: list[str]) -> None:
    """Fails unless the command line has a command and options that exist, with their values."""
    found: click.Command = main
    while isinstance(found, click.Group) and line and not line[0].startswith("-"):
        assert line[0] in found.commands, line
        found, line = found.commands[line[0]], line[1:]
    with found.make_context("acid", list(line)):
        pass


def test_the_files_are_there() -> None:
    assert [str(file.relative_to(ROOT)) for file in FILES] == [
        "deploy/compose.yaml",
        "deploy/kubernetes/metastore.yaml",
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_commands_have_options_that_exist(file: Path) -> None:
    lines = _command_lines(file)
    assert ["metastore", "serve"] in [line[:2] for line in lines]
    for line in lines:
        _require(line)


@pytest.mark.parametrize("line", [["metastore", "standby"], ["metastore", "serve", "--of", "x"]])
def test_a_command_that_does_not_exist_is_found(line: list[str]) -> None:
    with pytest.raises((AssertionError, click.UsageError)):
        _require(line)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_variables_are_those_that_the_configuration_names(file: Path) -> None:
    text = file.read_text()
    known = (ROOT / "docs" / "grow.md").read_text()
    named = set(re.findall(r"\bACID_[A-Z_]+\b", text))
    assert {name for name in named if f"`{name}`" not in known} == set()
    assert set(re.findall(r"\$\((\w+)\)", text)) <= _OF_PODS & set(re.findall(r"\w+", text))


def test_compose_starts_two_members_of_one_log() -> None:
    [document] = _documents(ROOT / "deploy" / "compose.yaml")
    services = document["services"]
    members = {name: one for name, one in services.items() if "serve" in one.get("command", ())}
    assert len(members) == 2
    assert {one["environment"]["ACID_METASTORE"] for one in members.values()} == {
        "postgresql://acid@postgres:5432/acid"
    }
    for name, member in members.items():
        assert f"--advertise {name}:7433" in " ".join(member["command"])
        assert "volumes" not in member
    mounted = {
        volume.partition(":")[0]
        for service in services.values()
        for volume in service.get("volumes", ())
    }
    named = {volume for volume in mounted if not volume.startswith(".")}
    assert named == set(document["volumes"])
    for folder in mounted - named:
        assert (ROOT / "deploy" / folder).is_dir()


def test_dagster_in_postgresql_uses_the_driver_that_its_storage_is_written_for() -> None:
    """SQLAlchemy 2.1 takes psycopg 3 where none is named: `with` closes its connections."""
    [deployed] = _documents(ROOT / "deploy" / "dagster" / "dagster.yaml")
    assert deployed["storage"]["postgres"]["postgres_db"]["scheme"] == "postgresql+psycopg2"
    assert "scheme: postgresql+psycopg2 " in (ROOT / "docs" / "run.md").read_text()


def test_compose_runs_dagster_on_a_database_of_its_own() -> None:
    [document] = _documents(ROOT / "deploy" / "compose.yaml")
    services = document["services"]
    for name in ("code", "webserver", "daemon"):
        words, environment = services[name]["command"], services[name]["environment"]
        assert (ROOT / environment["DAGSTER_HOME"].removeprefix("/app/") / "dagster.yaml").exists()
        for number, word in enumerate(words):
            if word == "--workspace":
                [loaded] = _documents(ROOT / words[number + 1])
                [server] = loaded["load_from"]
        done = CliRunner().invoke(_DAGSTER[words[0]], [*words[1:], "--help"])
        assert done.exit_code == 0, done.output
    port = services["code"]["command"][-1]
    assert (server["grpc_server"]["host"], str(server["grpc_server"]["port"])) == ("code", port)
    config, _ = dagster_instance_config(str(ROOT / "deploy" / "dagster"))
    database = config["storage"]["postgres"]["postgres_db"]
    given = {value["env"] for value in database.values() if isinstance(value, dict)}
    assert given <= services["daemon"]["environment"].keys()
    made = document["configs"]["dagster-database"]["content"]
    assert services["daemon"]["environment"]["DAGSTER_PG_DB"] in made
    for service in services.values():
        for published in service.get("ports", ()):
            assert published.startswith("127.0.0.1:")


def test_the_deployment_finds_its_own_pods() -> None:
    documents = _documents(ROOT / "deploy" / "kubernetes" / "metastore.yaml")
    by_kind = {document["kind"]: document for document in documents}
    spec = by_kind["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    [container] = spec["template"]["spec"]["containers"]
    listened = container["args"][container["args"].index("--listen") + 1]
    watched = container["args"][container["args"].index("--metrics") + 1]
    ports = [str(port["containerPort"]) for port in container["ports"]]
    assert ports == [listened.rpartition(":")[2], watched.rpartition(":")[2]]
    assert "volumes" not in spec["template"]["spec"]
    names = {source[kind]["name"] for source in container["envFrom"] for kind in source}
    assert names == {by_kind["ConfigMap"]["metadata"]["name"]}


def test_the_image_has_the_command_in_its_path() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^ENV .*\bPATH=/app/\.venv/bin:\$PATH$", text, re.MULTILINE)
