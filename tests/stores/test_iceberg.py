"""A warehouse in an object store: readers of Iceberg find its tables there."""

from __future__ import annotations

import json

import pytest

from acid_platform import Warehouse
from tests.stores.conftest import Bucket

tables = pytest.importorskip("pyiceberg.table", reason="pip install pyiceberg")


@pytest.mark.more
def test_an_export_names_files_by_their_uris(warehouse: Warehouse, bucket: Bucket) -> None:
    table = warehouse.create_table(
        "i.t", "id int", partitioned_by=["p string"], properties={"acid.format": "parquet"}
    )
    table.insert([{"id": number, "p": "a b"} for number in range(10)])
    first = warehouse.export_iceberg("i.t")
    table.delete("id > 6")
    table.insert([{"id": 100, "p": None}])
    second = warehouse.export_iceberg("i.t")
    assert (first.told, second.told) == (2, 2)
    files, path = warehouse.files, second.metadata.partition("://")[2]
    document = json.loads(files.read(path))
    assert document["location"].startswith(bucket.uri)
    if files.scheme == "s3":
        environment = bucket.server.environment
        options = {"s3.endpoint": environment["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}
        options |= {
            "s3.access-key-id": environment["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": environment["AWS_SECRET_ACCESS_KEY"],
        }
        read = tables.StaticTable.from_metadata(second.metadata, options).scan().to_arrow()
        assert sorted(read["id"].to_pylist()) == [*range(7), 100]


@pytest.mark.more
def test_a_catalog_of_ducklake_names_files_by_their_uris(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    table = warehouse.create_table("i.t", "id int", properties={"acid.format": "parquet"})
    table.insert([{"id": 1}])
    assert warehouse.export_ducklake().told == 2
    table.insert([{"id": 2}])
    export = warehouse.export_ducklake()
    assert (export.told, export.tables) == (1, ("i.t",))
    assert export.catalog.startswith(bucket.uri)
