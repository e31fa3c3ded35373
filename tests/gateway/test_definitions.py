"""What other engines define through the gateway, and what is refused rather than lost (P34)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.thrift import TApplicationException

from acid_platform import InvalidDefinition, UnsupportedStatement, Warehouse
from acid_platform.gateway import protocol
from acid_platform.gateway.gateway import Gateway
from acid_platform.gateway.gateway_server import GatewayServer
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from tests.acid_files import AcidTable
from tests.gateway.clients import (
    EXCL_WRITE,
    EXCLUSIVE,
    INSERT,
    NO_TXN,
    SELECT,
    Statement,
    begun,
    connected,
    m,
    new_partition,
    shown,
    trino_insert,
)


def declared(
    name: str,
    columns: Sequence[tuple[str, str]] = (("id", "int"), ("v", "string")),
    keys: Sequence[str] = (),
) -> Any:
    """A table as Trino sends it for CREATE TABLE … WITH (transactional = true).

    `keys`: partition columns.
    """
    storage = protocol.STORAGE["orc"]
    return m.Table(
        dbName="made",
        tableName=name,
        owner="ann",
        tableType="MANAGED_TABLE",
        partitionKeys=[m.FieldSchema(name=key, type="string") for key in keys],
        parameters={
            "transactional": "true",
            "trino_version": "476",
            "trino_query_id": "20261123_1",
            "STATS_GENERATED_VIA_STATS_TASK": "workaround",
        },
        sd=m.StorageDescriptor(
            cols=[m.FieldSchema(name=column, type=kind) for column, kind in columns],
            inputFormat=storage.reads,
            outputFormat=storage.writes,
            serdeInfo=m.SerDeInfo(name=name, serializationLib=storage.serde, parameters={}),
            numBuckets=0,
            bucketCols=[],
            sortCols=[],
        ),
    )


@pytest.fixture(scope="module", autouse=True)
def database(warehouse: Warehouse) -> None:
    warehouse.metastore.create_database("made")


def test_P34_hive_4_says_in_one_struct_what_others_say_in_several_arguments(
    client: Any, warehouse: Warehouse
) -> None:
    usual = f"file:{warehouse.path}/structs.db"
    client.create_database_req(
        m.CreateDatabaseRequest(
            databaseName="structs", locationUri=usual, managedLocationUri=usual, parameters={}
        )
    )
    asked = m.GetDatabaseObjectsRequest(pattern="struct*")
    assert client.get_databases_req(asked).databases == [client.get_database("structs")]
    with pytest.raises(m.InvalidObjectException, match=r"set hive\.metastore\.warehouse\.dir"):
        client.create_database_req(
            m.CreateDatabaseRequest(databaseName="other", managedLocationUri="file:/elsewhere")
        )
    warehouse.create_table("structs.t", "id int", partitioned_by=["p int"])
    table = {"dbName": "@hive#structs", "tblName": "t"}
    fields = client.get_fields_req(m.GetFieldsRequest(**table)).fields
    assert [column.name for column in fields] == ["id"]
    schema = client.get_schema_req(m.GetFieldsRequest(**table)).fields
    assert [column.name for column in schema] == ["id", "p"]
    for number in (1, 2):
        client.append_partition_req(
            m.AppendPartitionsRequest(dbName="structs", tableName="t", partVals=[str(number)])
        )
    client.append_partition_req(
        m.AppendPartitionsRequest(dbName="structs", tableName="t", name="p=3")
    )
    found = client.get_partition_req(m.GetPartitionRequest(partVals=["2"], **table))
    assert found.partition.values == ["2"]
    listed = client.get_partitions_by_filter_req(m.GetPartitionsByFilterRequest(filter="", **table))
    assert len(listed) == 3
    with pytest.raises(m.MetaException, match="can't be chosen"):
        client.get_partitions_by_filter_req(m.GetPartitionsByFilterRequest(filter="p=1", **table))
    assert client.drop_partition_req(m.DropPartitionRequest(partVals=["2"], **table))
    assert client.drop_partition_req(m.DropPartitionRequest(partName="p=3", **table))
    with pytest.raises(m.MetaException, match="without its files"):
        client.drop_partition_req(m.DropPartitionRequest(partName="p=1", deleteData=False, **table))
    assert warehouse.metastore.partitions("structs.t") == ["p=1"]
    assert client.get_functions_req(m.GetFunctionsRequest(dbName="structs")).functions == []
    client.drop_table_req(m.DropTableRequest(dbName="structs", tableName="t", deleteData=True))
    assert client.get_all_tables("structs") == []


def test_P34_a_table_is_made_written_altered_and_dropped(client: Any, warehouse: Warehouse) -> None:
    client.create_table(declared("life"))
    record = warehouse.metastore.table("made.life")
    assert record.columns == (("id", "int"), ("v", "string"))
    assert record.properties == {"transactional": "true"}
    trino_insert(client, "made.life", [(1, "a")])
    new = shown(client, "made.life")
    new.sd.cols.append(m.FieldSchema(name="w", type="bigint"))
    new.parameters["numRows"] = "1"
    client.alter_table_with_environment_context("made", "life", new, None)
    assert warehouse.table("made.life").to_arrow().to_pylist() == [{"id": 1, "v": "a", "w": None}]
    new = shown(client, "made.life")
    new.tableName, new.parameters["owner.team"] = "later", "x"
    client.alter_table("made", "life", new)
    assert warehouse.metastore.table("made.later").properties["owner.team"] == "x"
    assert warehouse.table("made.later").count() == 1
    client.drop_table("made", "later", True)
    with pytest.raises(m.NoSuchObjectException):
        shown(client, "made.later")
    with pytest.raises(m.NoSuchObjectException):
        client.drop_table("made", "later", True)


def test_P34_statistics_that_an_engine_sets_change_nothing(
    client: Any, warehouse: Warehouse
) -> None:
    client.create_table(declared("counted"))
    before = warehouse.metastore.table("made.counted")
    new = shown(client, "made.counted")
    new.parameters |= {"numRows": "5", "totalSize": "9", "transient_lastDdlTime": "1"}
    client.alter_table("made", "counted", new)
    assert warehouse.metastore.table("made.counted") == before


def test_P28_an_alter_that_did_not_see_the_last_one_is_refused(
    client: Any, warehouse: Warehouse
) -> None:
    client.create_table(declared("raced"))
    first, second = (shown(client, "made.raced") for _ in range(2))
    first.sd.cols.append(m.FieldSchema(name="a", type="int"))
    second.sd.cols.append(m.FieldSchema(name="b", type="int"))
    client.alter_table("made", "raced", first)
    with pytest.raises(m.MetaException) as refused:
        client.alter_table("made", "raced", second)
    assert "altered since it was read" in refused.value.message
    assert [name for name, _ in warehouse.metastore.table("made.raced").columns] == ["id", "v", "a"]


def external(table: Any) -> None:
    table.parameters["EXTERNAL"] = "TRUE"


def plain(table: Any) -> None:
    del table.parameters["transactional"]


def as_text(table: Any) -> None:
    table.sd.serdeInfo.serializationLib = protocol.STORAGE["text"].serde


def as_parquet(table: Any) -> None:
    table.sd.serdeInfo.serializationLib = protocol.STORAGE["parquet"].serde


def as_csv(table: Any) -> None:
    table.sd.serdeInfo.serializationLib = "org.apache.hadoop.hive.serde2.OpenCSVSerde"


def as_view(table: Any) -> None:
    table.tableType = "VIRTUAL_VIEW"


def ordered(table: Any) -> None:
    table.sd.sortCols = [m.Order(col="id", order=1)]


def elsewhere(table: Any) -> None:
    table.dbName = "nowhere"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (external, "transactional = true"),
        (plain, "transactional = true"),
        (as_text, "hold no row identities"),
        (as_parquet, "its files are parquet"),
        (as_csv, "OpenCSVSerde"),
        (as_view, "acid sql"),
        (ordered, "SORTED BY"),
        (elsewhere, "no database nowhere"),
    ],
)
def test_P34_what_can_not_be_kept_is_refused(
    client: Any, warehouse: Warehouse, change: Any, told: str
) -> None:
    table = declared("refused")
    change(table)
    with pytest.raises((m.InvalidObjectException, m.NoSuchObjectException)) as refused:
        client.create_table(table)
    assert told in refused.value.message
    assert "made.refused" not in [one.name for one in warehouse.metastore.tables()]


@pytest.mark.parametrize("what", ["location", "order", "drop", "serde", "kind"])
def test_P34_an_alter_that_would_misread_files_is_refused(
    client: Any, warehouse: Warehouse, what: str
) -> None:
    if "made.kept" not in [one.name for one in warehouse.metastore.tables()]:
        client.create_table(declared("kept", [("id", "int"), ("v", "string"), ("w", "int")]))
    before = warehouse.metastore.table("made.kept")
    new = copy.deepcopy(shown(client, "made.kept"))
    match what:
        case "location":
            new.sd.location += "_other"
        case "order":
            new.sd.cols = [new.sd.cols[number] for number in (1, 0, 2)]
        case "drop":
            new.sd.cols = new.sd.cols[:2]
        case "serde":
            new.sd.serdeInfo.serializationLib = protocol.STORAGE["parquet"].serde
        case _:
            new.sd.cols[0].type = "string" if new.sd.cols[0].type != "int" else "boolean"
    with pytest.raises(m.InvalidOperationException):
        client.alter_table("made", "kept", new)
    assert warehouse.metastore.table("made.kept") == before


def test_P34_rows_with_keys_in_parquet_are_refused_to_who_would_not_find_them(
    client: Any, warehouse: Warehouse
) -> None:
    """Hive would look for keys in the files, or read deleted rows."""
    made = warehouse.create_table("made.flat", "id int", properties={"acid.format": "parquet"})
    made.insert([{"id": 1}, {"id": 2}])
    made.delete("id = 1")
    request = m.GetTableRequest(dbName="made", tblName="flat")
    for ask in (
        lambda: client.get_table("made", "flat"),
        lambda: client.get_table_req(request),
        lambda: client.get_table_objects_by_name("made", ["flat"]),
    ):
        with pytest.raises((m.MetaException, TApplicationException)) as refused:
            ask()
        assert "made.flat: its files are parquet" in refused.value.message
    assert "flat" in client.get_all_tables("made")


def test_P34_a_column_of_files_keeps_its_name(client: Any, warehouse: Warehouse) -> None:
    client.create_table(declared("names"))
    new = copy.deepcopy(shown(client, "made.names"))
    new.sd.cols[1].name = "w"
    client.alter_table("made", "names", new)
    trino_insert(client, "made.names", [(1, "a")])
    new = copy.deepcopy(shown(client, "made.names"))
    new.sd.cols[1].name = "v"
    for _ in range(2):  # with the row, and with the file of the deleted row
        with pytest.raises(m.InvalidOperationException, match="its files find w by its name"):
            client.alter_table("made", "names", new)
        warehouse.table("made.names").delete()


def test_P34_a_directory_with_files_becomes_no_new_table(client: Any, warehouse: Warehouse) -> None:
    """As when CREATE TABLE AS SELECT sends the table after its files."""
    AcidTable(Path(warehouse.path) / "made.db" / "filled", "id int").raw("o", [1])
    with pytest.raises(m.InvalidObjectException) as refused:
        client.create_table(declared("filled"))
    assert "holds data" in refused.value.message
    assert "create the table first, then INSERT" in refused.value.message


def test_P22_a_drop_under_hives_own_lock_is_hives_transaction(
    client: Any, warehouse: Warehouse
) -> None:
    client.create_table(declared("locked"))
    statement = Statement(client)
    statement.lock("made.locked", SELECT, EXCLUSIVE)
    client.drop_table_with_environment_context("made", "locked", True, None)
    statement.commit()
    assert "made.locked" not in [one.name for one in warehouse.metastore.tables()]


def test_P34_partitions_are_added_and_dropped(client: Any, warehouse: Warehouse) -> None:
    client.create_table(declared("split", keys=["p"]))
    for name in ("p=1", "p=a b", "p=__HIVE_DEFAULT_PARTITION__"):
        client.add_partition(new_partition(client, "made.split", name))
    assert client.get_partition("made", "split", ["a b"]).values == ["a b"]
    moved = new_partition(client, "made.split", "p=9")
    moved.sd.location += "_elsewhere"
    with pytest.raises(m.InvalidObjectException):
        client.add_partition(moved)
    client.drop_partition("made", "split", ["a b"], True)
    with pytest.raises(m.NoSuchObjectException):
        client.drop_partition("made", "split", ["a b"], True)
    names = client.get_partition_names("made", "split", -1)
    assert names == ["p=1", "p=__HIVE_DEFAULT_PARTITION__"]
    trino_insert(client, "made.split", [(1, "a")], "p=a b")
    assert warehouse.table("made.split").count() == 1


def test_names_that_no_path_holds_are_refused(client: Any, warehouse: Warehouse) -> None:
    long = "n" * 300
    with pytest.raises(m.InvalidObjectException, match="longer than 240 bytes"):
        client.create_table(declared(long))
    client.create_table(declared("narrow", keys=["p"]))
    partition = new_partition(client, "made.narrow", "p=1")
    partition.values = [long]
    partition.sd.location = partition.sd.location.replace("p=1", f"p={long}")
    with pytest.raises(m.InvalidObjectException, match="a directory name of 302 bytes"):
        client.add_partition(partition)
    renamed = copy.deepcopy(shown(client, "made.narrow"))
    renamed.tableName = long
    with pytest.raises(m.InvalidOperationException, match="longer than 240 bytes"):
        client.alter_table("made", "narrow", renamed)
    fields = declared("fields", [("s", "struct<ok:int,a-b:int>")])
    with pytest.raises(m.InvalidObjectException, match="can't be called 'a-b'"):
        client.create_table(fields)
    assert warehouse.table("made.narrow").partitions() == []


def test_P22_a_partition_made_again_is_told_when_the_rows_of_the_dropped_one_are_gone(
    client: Any, warehouse: Warehouse
) -> None:
    """Other engines would read both: a list of write ids belongs to the whole table."""
    client.create_table(declared("again", keys=["p"]))
    for name in ("p=1", "p=2"):
        trino_insert(client, "made.again", [(1, "dropped")], name)
    client.drop_partition("made", "again", ["1"], True)
    warehouse.sql("INSERT INTO made.again VALUES (2, 'new', '1')")
    assert client.get_partition_names("made", "again", -1) == ["p=1", "p=2"]
    assert client.get_partition("made", "again", ["2"]).values == ["2"]
    asked: list[tuple[Any, Any]] = [
        (client.get_partition, ["1"]),
        (client.get_partitions, -1),
        (client.get_partitions_by_names, ["p=1", "p=2"]),
    ]
    for call, which in asked:
        with pytest.raises(m.MetaException, match="of a partition that was dropped"):
            call("made", "again", which)
    cleaner.run(warehouse.metastore)
    assert [one.values for one in client.get_partitions("made", "again", -1)] == [["1"], ["2"]]
    assert warehouse.table("made.again").count() == 2


def test_P34_databases_are_made_and_dropped(client: Any, warehouse: Warehouse) -> None:
    client.create_database(m.Database(name="fresh", parameters={"trino_query_id": "1"}))
    assert "fresh" in warehouse.metastore.databases()
    # Trino refuses CREATE TABLE in a database whose directory is missing.
    assert (Path(warehouse.path) / "fresh.db").is_dir()
    assert client.get_database("made").locationUri.endswith("/made.db")
    assert (Path(warehouse.path) / "made.db").is_dir()
    with pytest.raises(m.AlreadyExistsException):
        client.create_database(m.Database(name="fresh"))
    inside = declared("inside")
    inside.dbName = "fresh"
    client.create_table(inside)
    with pytest.raises(m.InvalidOperationException):
        client.drop_database("fresh", True, False)
    client.drop_database("fresh", True, True)
    assert "fresh" not in warehouse.metastore.databases()


def test_P34_comments_and_properties_of_a_database_are_kept(
    client: Any, warehouse: Warehouse
) -> None:
    made = m.Database(name="described", description="told", parameters={"team": "a", "tier": "1"})
    made.ownerName, made.ownerType = "ann", 1
    client.create_database(made)
    shown = client.get_database("described")
    assert (shown.description, shown.parameters) == ("told", {"team": "a", "tier": "1"})
    assert (shown.ownerName, shown.ownerType) == ("ann", 1)
    shown.description, shown.parameters = "anew", {"team": "b"}
    shown.ownerName, shown.ownerType = "admins", 2
    client.alter_database("described", shown)
    described = warehouse.sql("DESCRIBE DATABASE EXTENDED described").iloc[0]
    assert [described[name] for name in ("comment", "owner_name", "owner_type", "parameters")] == [
        "anew",
        "admins",
        "ROLE",
        "{team=b}",
    ]
    shown.ownerType = 3
    with pytest.raises(m.MetaException, match="can't be owned by a group"):
        client.alter_database("described", shown)
    shown.ownerType, shown.name = 2, "renamed"
    with pytest.raises(m.MetaException, match="can't be renamed"):
        client.alter_database("described", shown)


def test_P34_comments_of_columns_are_kept_both_ways(client: Any, warehouse: Warehouse) -> None:
    table = declared("commented")
    table.sd.cols[0].comment = "the key"
    table.parameters["comment"] = "a table"
    client.create_table(table)
    record = warehouse.table("made.commented").record
    assert record.comments == {table.sd.cols[0].name: "the key"}
    assert record.properties["comment"] == "a table"
    table = shown(client, "made.commented")
    assert table.sd.cols[0].comment == "the key"
    table.sd.cols[0].comment = "another"
    client.alter_table("made", "commented", table)
    assert [*warehouse.table("made.commented").record.comments.values()] == ["another"]
    table = shown(client, "made.commented")
    table.sd.cols[0].comment = None
    client.alter_table("made", "commented", table)
    assert warehouse.table("made.commented").record.comments == {}


def test_P34_constraints_are_told_and_footers_prove_them(client: Any, warehouse: Warehouse) -> None:
    """What no footer proves is refused, and nothing of it is visible."""
    table = declared("limited")
    own = {"catName": "hive", "table_db": "made", "table_name": "limited", "enable_cstr": True}
    request = m.CreateTableRequest(
        table=table,
        primaryKeys=[
            m.SQLPrimaryKey(
                table_db="made",
                table_name="limited",
                column_name="id",
                key_seq=1,
                pk_name="pk",
                enable_cstr=False,
                rely_cstr=True,
            )
        ],
        notNullConstraints=[m.SQLNotNullConstraint(column_name="id", nn_name="nn", **own)],
        defaultConstraints=[
            m.SQLDefaultConstraint(column_name="v", default_value="'x'", dc_name="dv", **own)
        ],
        checkConstraints=[
            m.SQLCheckConstraint(column_name="id", check_expression="id > 0", dc_name="ck", **own)
        ],
    )
    client.create_table_req(request)
    warehouse.sql("INSERT INTO made.limited (id) VALUES (1)")
    assert warehouse.table("made.limited").to_arrow().to_pylist() == [{"id": 1, "v": "x"}]
    of_table = {"catName": "hive", "db_name": "made", "tbl_name": "limited"}
    asked = m.NotNullConstraintsRequest(**of_table)
    (one,) = client.get_not_null_constraints(asked).notNullConstraints
    assert (one.column_name, one.nn_name, one.enable_cstr) == ("id", "nn", True)
    (one,) = client.get_check_constraints(m.CheckConstraintsRequest(**of_table)).checkConstraints
    assert (one.check_expression, one.dc_name) == ("id > 0", "ck")
    (one,) = client.get_default_constraints(
        m.DefaultConstraintsRequest(**of_table)
    ).defaultConstraints
    assert (one.column_name, one.default_value) == ("v", "'x'")
    (one,) = client.get_primary_keys(m.PrimaryKeysRequest(**of_table)).primaryKeys
    assert (one.pk_name, one.enable_cstr, one.rely_cstr) == ("pk", False, True)
    whole = client.get_all_table_constraints(
        m.AllTableConstraintsRequest(dbName="made", tblName="limited", catName="hive")
    ).allTableConstraints
    assert [len(getattr(whole, name)) for name in ("primaryKeys", "checkConstraints")] == [1, 1]
    trino_insert(client, "made.limited", [(2, "proven"), (3, None)])
    for row in ((None, "a"), (-1, "b")):
        with pytest.raises(m.TxnAbortedException, match=r"don't prove .* made\.limited"):
            trino_insert(client, "made.limited", [(4, "c"), row])
    assert sorted(warehouse.table("made.limited").to_arrow().column("id").to_pylist()) == [1, 2, 3]
    warehouse.sql("ALTER TABLE made.limited ADD CONSTRAINT long CHECK (length(v) > 0)")
    with pytest.raises(m.TxnAbortedException, match="constraint long"):
        trino_insert(client, "made.limited", [(5, "unproven")])
    warehouse.sql("INSERT INTO made.limited VALUES (6, 'here')")


def truncating(client: Any, table: str, partitions: Sequence[str] | None = None) -> Statement:
    """Hive's TRUNCATE, up to its commit."""
    statement = Statement(client)
    statement.lock(table, NO_TXN, EXCL_WRITE)
    database, name = table.split(".")
    client.truncate_table_req(
        m.TruncateTableRequest(
            dbName=database,
            tableName=name,
            partNames=partitions,
            writeId=statement.allocate(table),
        )
    )
    return statement


def test_P32_truncate_empties_a_table_when_its_transaction_commits(
    client: Any, warehouse: Warehouse
) -> None:
    client.create_table(declared("emptied"))
    table = warehouse.table("made.emptied")
    trino_insert(client, table.name, [(1, "a")])
    truncating(client, table.name).abort()
    statement = truncating(client, table.name)
    assert table.count() == 1
    statement.commit()
    assert table.count() == 0
    trino_insert(client, table.name, [(2, "b")])
    assert table.to_arrow().to_pylist() == [{"id": 2, "v": "b"}]
    assert warehouse.metastore.history(table.name)[1]["overwrite"]


def test_P32_truncate_empties_partitions_of_a_table(client: Any, warehouse: Warehouse) -> None:
    client.create_table(declared("cut", keys=["p"]))
    for number, name in enumerate(("p=1", "p=a b", "p=3")):
        trino_insert(client, "made.cut", [(number, "a")], name)
    truncating(client, "made.cut", ["p=a b"]).commit()
    assert sorted(warehouse.table("made.cut").to_arrow().column("id").to_pylist()) == [0, 2]
    with pytest.raises((m.MetaException, TApplicationException)):
        truncating(client, "made.cut", ["p=nowhere"])


def test_P32_truncate_with_a_write_id_that_is_not_the_clients_is_refused(
    client: Any, server: GatewayServer, warehouse: Warehouse
) -> None:
    """Its base would hide rows that others have committed."""
    client.create_table(declared("safe"))
    trino_insert(client, "made.safe", [(1, "a")])
    with connected(server.address) as other:
        theirs, foreign, _ = begun(other, "made.safe", INSERT)
        for write_id in (1, foreign, foreign + 1, None):
            request = m.TruncateTableRequest(dbName="made", tableName="safe", writeId=write_id)
            with pytest.raises(m.MetaException) as refused:
                client.truncate_table_req(request)
            assert "run TRUNCATE again" in refused.value.message
        with pytest.raises(m.MetaException):
            client.truncate_table("made", "safe", [])
        theirs.abort()
    assert warehouse.table("made.safe").count() == 1


def column_statistics(name: str, distinct: int, partition: str | None = None) -> Any:
    """What ANALYZE sends for the column `id`."""
    counted = m.LongColumnStatsData(lowValue=1, highValue=9, numNulls=0, numDVs=distinct)
    return m.ColumnStatistics(
        statsDesc=m.ColumnStatisticsDesc(
            isTblLevel=partition is None, dbName="made", tableName=name, partName=partition
        ),
        statsObj=[
            m.ColumnStatisticsObj(
                colName="id",
                colType="int",
                statsData=m.ColumnStatisticsData(longStats=counted),
            )
        ],
        engine="hive",
    )


def test_P34_column_statistics_and_counts_are_kept_and_served(
    client: Any, warehouse: Warehouse
) -> None:
    client.create_table(declared("analyzed"))
    client.update_table_column_statistics(column_statistics("analyzed", 7))
    new = shown(client, "made.analyzed")
    new.parameters |= {"numRows": "5", "totalSize": "9", "COLUMN_STATS_ACCURATE": "{}"}
    client.alter_table("made", "analyzed", new)

    def asked(*columns: str) -> list[int]:
        request = m.TableStatsRequest(
            dbName="made", tblName="analyzed", colNames=list(columns), engine="hive"
        )
        found = client.get_table_statistics_req(request).tableStats
        return [one.statsData.longStats.numDVs for one in found]

    assert asked("id", "v") == [7] and asked("v") == []
    kept = shown(client, "made.analyzed").parameters
    assert (kept["numRows"], kept["totalSize"]) == ("5", "9")
    assert "COLUMN_STATS_ACCURATE" not in kept  # Hive must not answer count(*) from it
    trino_insert(client, "made.analyzed", [(1, "a")])
    assert warehouse.table("made.analyzed").count() == 1
    # The counts of a column that has become another one are not served.
    warehouse.table("made.analyzed").change_column("id", "id bigint")
    assert asked("id") == []
    client.delete_table_column_statistics("made", "analyzed", "id", "hive")
    for file in (Path(warehouse.path) / "made.db/analyzed/_statistics_of_engines").iterdir():
        file.write_bytes(b"damaged")
    assert "numRows" not in shown(client, "made.analyzed").parameters and asked("id") == []
    found = [str(one) for one in examine(warehouse.metastore, ["made.analyzed"]).findings]
    assert [one for one in found if one.startswith("error") or "statistics" in one] == []


def test_P78_statistics_are_kept_of_the_tables_columns_only(
    client: Any, warehouse: Warehouse
) -> None:
    client.create_table(declared("bounded"))
    client.update_table_column_statistics(column_statistics("bounded", 7))
    (file,) = (Path(warehouse.path) / "made.db/bounded/_statistics_of_engines").iterdir()
    before = file.read_bytes()
    refused = (m.MetaException, m.InvalidObjectException)
    for name, sketch in (("gone", b""), ("", b""), ("x" * 5000, b""), ("id", b"x" * 100_000)):
        strange = column_statistics("bounded", 7)
        strange.statsObj[0].colName = name
        strange.statsObj[0].statsData.longStats.bitVectors = sketch
        with pytest.raises(refused, match=r"has no column|more than 65,536 bytes"):
            client.update_table_column_statistics(strange)
    assert file.read_bytes() == before
    huge = shown(client, "made.bounded")
    huge.parameters |= {"numRows": "9" * 5000, "totalSize": "9"}
    client.alter_table("made", "bounded", huge)
    assert "numRows" not in shown(client, "made.bounded").parameters


def test_P34_statistics_of_partitions_are_kept_and_served(
    client: Any, warehouse: Warehouse
) -> None:
    client.create_table(declared("measured", keys=["p"]))
    for number, name in enumerate(("p=1", "p=a b")):
        trino_insert(client, "made.measured", [(number, "a")], name)
    client.update_partition_column_statistics(column_statistics("measured", 3, "p=a b"))
    with pytest.raises(m.NoSuchObjectException):
        client.update_partition_column_statistics(column_statistics("measured", 3, "p=no"))
    request = m.PartitionsStatsRequest(
        dbName="made", tblName="measured", colNames=["id"], partNames=["p=1", "p=a b"], engine="x"
    )
    found = client.get_partitions_statistics_req(request).partStats
    assert {name: one[0].statsData.longStats.numDVs for name, one in found.items()} == {"p=a b": 3}
    (changed,) = client.get_partitions_by_names("made", "measured", ["p=1"])
    changed.parameters = {"numRows": "12"}
    client.alter_partitions_with_environment_context("made", "measured", [changed], None)
    both = client.get_partitions_by_names("made", "measured", ["p=1", "p=a b"])
    assert [one.parameters for one in both] == [{"numRows": "12"}, {}]
    assert warehouse.table("made.measured").partitions() == ["p=1", "p=a b"]
    cleaner.run(warehouse.metastore)
    assert warehouse.table("made.measured").count() == 2
    client.drop_table("made", "measured", True)
    cleaner.run(warehouse.metastore)
    client.create_table(declared("measured", keys=["p"]))
    assert client.get_partition_names("made", "measured", -1) == []
    assert not (Path(warehouse.path) / "made.db/measured/_statistics_of_engines").exists()


@pytest.mark.more
def test_P49_the_gateway_makes_tables_only_where_it_may(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """A user with rights on one database must not reach the server's files by a location."""
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    (allowed / "out").symlink_to(tmp_path / "elsewhere")
    gateway = Gateway(warehouse.metastore, locations=f"{allowed}, s3://lake/tables")
    root = warehouse.path
    gateway.create_database(m.Database(name="theirs"))
    refused = (
        *("/etc/acid_trial", str(tmp_path / "elsewhere"), f"file:{tmp_path}/x", f"{allowed}/../x"),
        *(f"file://other/{root}/x", f"{tmp_path}/link/x", f"{allowed}/out/x", str(allowed), "x/y"),
        *(f"file://{root}/_metastore/x", f"{root}/theirs.db/x", f"{root}/made.db/../theirs.db/x"),
        *(
            "s3://other/x",
            "s3://lake/tables/../x",
            "s3://lake/tablesx",
            "hdfs://name/x",
            "http://h/x",
        ),
        *(f"{allowed}x", f"{root}", "/", f"{root}/made.db", "s3://lake/tables?region=x"),
    )
    before = sorted(str(path) for path in tmp_path.rglob("*") if "_metastore" not in str(path))
    for location in refused:
        asked = declared("t")
        asked.sd.location = location
        with pytest.raises((InvalidDefinition, UnsupportedStatement)):
            gateway.create_table(asked)
    after = sorted(str(path) for path in tmp_path.rglob("*") if "_metastore" not in str(path))
    assert after == before
    for number, location in enumerate(
        (f"file://{root}/made.db/own", f"file:{root}/beside", f"{allowed}/a", f"file://{allowed}/b")
    ):
        asked = declared(f"t{number}")
        asked.sd.location = location
        gateway.create_table(asked)
    made = {record.location for record in warehouse.metastore.tables() if ".t" in record.name}
    assert f"{root}/beside" in made and f"{allowed}/b" in made
    asked = declared("t0")
    asked.sd.location = f"{allowed}/moved"
    with pytest.raises(UnsupportedStatement, match="location"):
        gateway.alter_table("made", "t0", asked)
