"""The expressions of the dashboard and of the alerts are about numbers that are served."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families as parsed

from acid_platform.base.ports import prometheus_text
from acid_platform.cli.runner import ServiceMetrics
from acid_platform.gateway.gateway import Gateway
from acid_platform.gateway.gateway_process import GatewayMetrics
from acid_platform.gateway.gateway_server import GatewayServer
from acid_platform.metastore.server.metrics import families
from tests.conftest import temporary_warehouse

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
_TARGET = frozenset({"job", "instance"})
"""Labels that Prometheus adds."""


def alerts() -> Iterator[tuple[str, str]]:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"] and rule["labels"]["severity"]
            yield rule["alert"], rule["expr"]


def panels() -> Iterator[tuple[str, str, str]]:
    """The title of each panel, and the expressions and legends in it."""
    file = DEPLOY / "grafana" / "dashboards" / "acid-platform.json"
    for panel in json.loads(file.read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


EXPRESSIONS = [*alerts(), *((title, expression) for title, expression, _ in panels())]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, frozenset[str]]:
    """The name of each number that metastore, gateway and services serve, and its labels."""
    with temporary_warehouse(tmp_path_factory.mktemp("watched") / "wh") as warehouse:
        calls, gateway = Gateway(warehouse.metastore), GatewayMetrics()
        gateway.observe("get_table", 0.1, "NoSuchTable")
        server = GatewayServer(calls, "127.0.0.1", 0)
        pages = [generate_latest(gateway.registry(server)).decode()]
        server.stop()
        status = warehouse.metastore.status()
        pages.append(prometheus_text(lambda: families(status)))
    service = ServiceMetrics("worker")
    service.compactions.labels("published").inc()
    service.errors.inc()
    with service.cycle():
        pass
    pages.append(generate_latest(service.registry).decode())
    numbers = {"up": _TARGET}
    for page in pages:
        for family in parsed(page):
            for sample in family.samples:
                numbers[sample.name] = _TARGET | sample.labels.keys()
    return numbers


def parts(expression: str) -> tuple[list[Any], set[str]]:
    """The selectors of an expression, and the labels that it groups by. Raises ValueError."""
    nodes: list[Any] = []
    promql_parser.walk(promql_parser.parse(expression), nodes.append)
    selectors = [node for node in nodes if isinstance(node, promql_parser.VectorSelector)]
    modifiers = [getattr(node, "modifier", None) for node in nodes]
    labels = {label for one in modifiers for label in getattr(one, "labels", None) or ()}
    return selectors, labels


def test_each_expression_names_what_is_served(served: Mapping[str, frozenset[str]]) -> None:
    for title, expression in EXPRESSIONS:
        found, grouped = parts(expression)
        assert found, title
        labels: set[str] = set()
        for selector in found:
            assert selector.name in served, f"{title}: nobody serves {selector.name}"
            known = served[selector.name]
            assert {matcher.name for matcher in selector.matchers.matchers} <= known, title
            labels |= known
        assert grouped <= labels, title


def test_legends_name_labels_that_the_expression_keeps() -> None:
    for title, expression, legend in panels():
        for label in re.findall(r"{{(\w+)}}", legend):
            assert label in parts(expression)[1] | {"instance"}, title


def test_each_alert_has_a_case_in_which_it_fires(served: Mapping[str, frozenset[str]]) -> None:
    """`promtool test rules` evaluates the cases."""
    cases = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text())["tests"]
    quiet, firing = ([each["series"] for each in case["input_series"]] for case in cases)
    for series in (quiet, firing):
        assert {name.partition("{")[0] for name in series} <= served.keys()
    [expected] = cases[1]["promql_expr_test"]
    fired = re.findall(r'alertname="(\w+)"', str(expected["exp_samples"]))
    assert fired == sorted(name for name, _ in alerts())


def test_a_wrong_expression_is_found(served: Mapping[str, frozenset[str]]) -> None:
    [selector], _ = parts("sum by (job) (rate(acid_metastore_gone_total[5m]))")
    assert selector.name not in served
    with pytest.raises(ValueError, match=r"."):
        parts("sum(rate(acid_metastore_up)")


def test_prometheus_asks_the_processes_of_compose() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    asked = {
        target
        for job in config["scrape_configs"]
        for each in job["static_configs"]
        for target in each["targets"]
    }
    serving = {
        f"{name}:{words[words.index('--metrics') + 1].rpartition(':')[2]}"
        for name, service in services.items()
        if "--metrics" in (words := service.get("command", []))
    }
    assert asked == serving
    jobs = {job["job_name"] for job in config["scrape_configs"]}
    for _, expression in EXPRESSIONS:
        for named in re.findall(r'job="(\w+)"', expression):
            assert named in jobs
    mounted = [volume for name in ("prometheus", "grafana") for volume in services[name]["volumes"]]
    for volume in mounted:
        if volume.startswith("./"):
            assert (DEPLOY / volume.partition(":")[0]).is_dir()
