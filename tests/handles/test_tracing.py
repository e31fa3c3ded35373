"""Each statement is a span with the ids of its transaction and run, if OpenTelemetry is there."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from acid_platform import Warehouse, WrongType
from acid_platform.base import logs
from tests.conftest import temporary_warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh") as warehouse, warehouse.using("local"):
        warehouse.run_id = "run-1"
        warehouse.create_table("db.t", "id int")
        yield warehouse


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(logs, "_tracer", lambda: provider.get_tracer("acid_platform"))
    return exporter


def told(span: ReadableSpan) -> tuple[str, dict[str, Any]]:
    return span.name, dict(span.attributes or {})


def test_a_verb_and_a_statement_of_sql_are_spans(
    warehouse: Warehouse, spans: InMemorySpanExporter
) -> None:
    with warehouse.transaction() as txn:
        txn.table("db.t").insert([{"id": 1}])
        txn.sql("INSERT INTO db.t VALUES (2)")
        txn.sql("SELECT * FROM db.t").to_arrow()
        ids = {"acid_platform.transaction": txn.id, "acid_platform.run_id": "run-1"}
    verb, written, statement, query = spans.get_finished_spans()
    assert told(verb) == ("write db.t", {**ids, "acid_platform.engine": "local"})
    assert told(statement) == ("Insert", ids) and told(query) == ("Query", ids)
    assert written.parent is not None and statement.context is not None
    assert written.parent.span_id == statement.context.span_id


def test_an_error_marks_its_span(warehouse: Warehouse, spans: InMemorySpanExporter) -> None:
    with pytest.raises(WrongType):
        warehouse.table("db.t").insert([{"id": "many"}])
    [span, *_] = spans.get_finished_spans()
    assert not span.status.is_ok


def test_nothing_is_traced_unless_the_process_has_imported_opentelemetry(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    warehouse.sql("INSERT INTO db.t VALUES (2)")
    assert logs._tracer() is None
    assert "opentelemetry.trace" not in sys.modules
    assert warehouse.table("db.t").count() == 1


def test_logs_have_the_ids_of_the_statement(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(logs.StatementIds())
    caplog.handler.setFormatter(logging.Formatter("%(acid_transaction)d %(acid_run)s %(message)s"))
    with logs.statement_span("write db.t", 7, "run-1"):
        logging.getLogger("acid_platform.write").warning("slow")
    logging.getLogger("other").warning("idle")
    assert caplog.text == "7 run-1 slow\n0  idle\n"
