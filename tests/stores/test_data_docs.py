"""Data Docs of Great Expectations are written below a prefix of each kind of store."""

from __future__ import annotations

import pandas as pd
import pytest

from acid_platform.orchestration.check_results import DocsSite
from acid_platform.orchestration.checks import Expectation
from acid_platform.orchestration.evaluation import evaluate
from acid_platform.storage.files import Files
from tests.stores.conftest import Bucket


@pytest.mark.slow
def test_pages_of_an_evaluation_in_a_store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACID_DATA_DOCS", bucket.at("docs/gx"))
    site = DocsSite.of("shop.orders", "run-1")
    given = Expectation("ids_are_given", "ExpectColumnValuesToNotBeNull", {"column": "id"})
    [finding] = evaluate(pd.DataFrame({"id": [1, None]}), [given], site=site)
    assert not finding.passed and finding.details["unexpected_count"] == 1
    files, path = Files.of(finding.site)
    with files.system.open_input_stream(path) as stream:
        if bucket.server.tells_types:
            assert b"text/html; charset=utf-8" in stream.metadata().values()
        assert b"shop.orders" in stream.read()
    keys = bucket.server.keys(bucket.name, "docs/gx/shop.orders/")
    assert finding.site.removeprefix(bucket.at("")) in keys
    assert {key.rpartition(".")[2] for key in keys} == {"html"}
