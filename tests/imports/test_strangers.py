"""A source of a stranger runs nothing, and has no file imported but its own (P67).

pyiceberg and deltalake are the extra `import`; without them their tests are left out.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from acid_platform import DeltaSource, DuckDBSource, FolderSource, IcebergSource
from acid_platform.base import databases, local_files
from acid_platform.base.file_bounds import BATCH_BYTES
from acid_platform.errors import AcidError, CorruptFile, ImportRefused, OwnedByOthers
from acid_platform.formats import parquet_files as formats
from acid_platform.formats import parquet_pages
from acid_platform.handles import iceberg_tables, import_sources
from acid_platform.handles.iceberg_tables import _require_bounded_avro
from tests.imports.hostile import CALLS

RAN = "tests.imports.hostile.Ran"
SCHEMA = pa.schema([("x", pa.int64())])


@pytest.fixture(autouse=True)
def _nothing_ran() -> Iterator[None]:
    CALLS.clear()
    yield
    assert not CALLS


# --- Iceberg --------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """A table of Iceberg with one row, in a catalog of SQLite."""
    pytest.importorskip("pyiceberg", reason="pip install 'acid-platform[import]'")
    pytest.importorskip("sqlalchemy", reason="pip install 'pyiceberg[sql-sqlite]'")
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(
        "made", type="sql", uri=f"sqlite:///{tmp_path}/made.db", warehouse=f"file://{tmp_path}/lake"
    )
    catalog.create_namespace("shop")
    made = catalog.create_table("shop.t", schema=SCHEMA)
    made.append(pa.table({"x": [1]}, SCHEMA))
    yield made
    catalog.close()


def code_names() -> list[str]:
    """The properties by which pyiceberg takes the name of a class, read from its own modules."""
    import pyiceberg

    names = set()
    for module in Path(str(pyiceberg.__file__)).parent.rglob("*.py"):
        names |= set(re.findall(r'"([\w.-]*impl)"', module.read_text()))
    return sorted(names)


def hostile(metadata: str, **changed: object) -> str:
    """A copy of a metadata file with other members; those of `properties` name code, too."""
    path = Path(metadata.removeprefix("file://"))
    content = json.loads(path.read_text())
    content["properties"] |= dict.fromkeys(code_names(), RAN) | {"auth": RAN, "s3.endpoint": "x"}
    copy = path.with_name("99999-0.metadata.json")
    copy.write_text(json.dumps(content | changed))
    return str(copy)


def test_P67_no_property_of_an_iceberg_table_chooses_code(table: Any) -> None:
    assert {"py-io-impl", "s3.retry-strategy-impl", "py-catalog-impl"} <= {*code_names()}
    with IcebergSource(hostile(table.metadata_location)) as source:
        assert source.rows([]).read_all().to_pylist() == [{"x": 1}]
        assert not source._table.io.properties
    with suppress(AcidError), IcebergSource(hostile(table.metadata_location, location="s3://b/t")):
        pass


@pytest.mark.parametrize("kind", ["sql", "rest"])
def test_P67_no_property_in_a_catalog_chooses_code(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from pyiceberg.utils.config import Config

    metadata = hostile(table.metadata_location)
    code = dict.fromkeys(code_names(), RAN)
    if kind == "sql":
        import sqlite3

        with sqlite3.connect(tmp_path / "made.db") as database:
            database.execute("update iceberg_tables set metadata_location = ?", [metadata])
        serving: Any = nullcontext()
        uri = f"sqlite:///{tmp_path}/made.db"
    else:
        loaded = {"metadata-location": metadata, "metadata": json.loads(Path(metadata).read_text())}
        answers = {
            "/v1/config": {"defaults": code, "overrides": code},
            "/v1/namespaces/shop/tables/t": {**loaded, "config": {**code, "region": "here"}},
        }
        serving = served(answers)
        uri = ""
    with serving as address:
        for name, value in {"TYPE": kind, "URI": uri or address}.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__MADE__{name}", value)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        if kind == "rest":  # whose server may name any file of this machine
            for allowed in ([], [str(tmp_path / "lake/shop/other")]):
                with pytest.raises(ImportRefused, match=r"99999-0\.metadata\.json"):
                    IcebergSource("shop.t", "made", files_in=allowed)
        with IcebergSource("shop.t", "made", files_in=[str(tmp_path / "lake")]) as source:
            assert source.rows([]).read_all().to_pylist() == [{"x": 1}]
            kept = source._table.io.properties
    assert not {*code} & {*kept}
    assert "s3.endpoint" not in kept
    assert kept.get("region") == ("here" if kind == "rest" else None)


@contextmanager
def served(answers: dict[str, object]) -> Iterator[str]:
    """A server that answers each path with JSON; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            self.send_response(404 if answer is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer or {}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_P67_an_iceberg_table_names_no_file_outside_of_its_directory(
    table: Any, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    parquet.write_table(pa.table({"x": [666]}, SCHEMA), mine / "private.parquet")
    first = table.metadata_location
    table.add_files([f"file://{mine}/private.parquet"])
    with IcebergSource(table.metadata_location) as source:
        for read in (lambda: source.rows([]), lambda: source.added(IcebergSource(first).snapshot)):
            with pytest.raises(
                ImportRefused, match=r"names .*/mine/private\.parquet, which is not"
            ):
                read()
    with IcebergSource(table.metadata_location, files_in=[str(mine)]) as source:
        assert source.rows([]).read_all().num_rows == 2
    snapshots = json.loads(Path(first.removeprefix("file://")).read_text())["snapshots"]
    for elsewhere in (f"{mine}/list.avro", "s3://bucket/list.avro", "file:///etc/x?/../list.avro"):
        moved = hostile(first, snapshots=[snapshots[0] | {"manifest-list": elsewhere}])
        with IcebergSource(moved) as source, pytest.raises(ImportRefused, match="which is not"):
            source.rows([])


@pytest.mark.parametrize("place", ["file:///", "/metadata/", "/", "file:///metadata/../metadata/"])
def test_P67_a_catalog_names_no_directory_above_all(place: str) -> None:
    pytest.importorskip("pyiceberg", reason="pip install 'acid-platform[import]'")
    named = SimpleNamespace(metadata_location=f"{place}1.metadata.json")
    with pytest.raises(ImportRefused, match="is in no directory"):
        iceberg_tables.place_of(named)


def test_P65_metadata_that_unpack_to_much_are_refused(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = Path(table.metadata_location.removeprefix("file://"))
    packed = metadata.with_name("99999-0.gz.metadata.json")
    content = json.loads(metadata.read_text())
    packed.write_bytes(gzip.compress(json.dumps(content).encode()))
    with IcebergSource(str(packed)) as source:
        assert source.rows([]).read_all().num_rows == 1
    content["properties"]["long"] = "x" * (20 << 20)
    packed.write_bytes(gzip.compress(json.dumps(content).encode()))
    with pytest.raises(ImportRefused, match=r"gz\.metadata\.json unpacks to more than"):
        IcebergSource(str(packed))
    manifests = sorted(metadata.parent.glob("*.avro"))
    assert len(manifests) == 2
    for manifest in manifests:
        _require_bounded_avro(manifest.read_bytes(), str(manifest), 1 << 20)
    monkeypatch.setattr("acid_platform.handles.iceberg_tables._SMALL", 100)
    monkeypatch.setattr("acid_platform.handles.iceberg_tables.MOST_UNPACKED", 0)
    with (
        IcebergSource(table.metadata_location) as source,
        pytest.raises(ImportRefused, match=r"\.avro unpacks to more"),
    ):
        source.rows([])


def _avro(codec: str, block: bytes, rows: int = 1) -> bytes:
    def number(value: int) -> bytes:
        value, written = value << 1 ^ value >> 63, bytearray()
        while value > 127:
            written.append(value & 127 | 128)
            value >>= 7
        return bytes([*written, value])

    def text(content: bytes) -> bytes:
        return number(len(content)) + content

    names = number(1) + text(b"avro.codec") + text(codec.encode()) + number(0)
    return b"Obj\x01" + names + bytes(16) + number(rows) + text(block) + bytes(16)


def test_P65_every_codec_of_avro_is_bounded() -> None:
    plain = bytes(1 << 20)
    deflated = zlib.compressobj(9, zlib.DEFLATED, -15)
    blocks = {
        "null": plain,
        "deflate": deflated.compress(plain) + deflated.flush(),
        "snappy": pa.compress(plain, "snappy", asbytes=True),
        "bzip2": bz2.compress(plain),
        "zstandard": pa.compress(plain, "zstd", asbytes=True),
    }
    for codec, block in blocks.items():
        _require_bounded_avro(_avro(codec, block), "a.avro", 1 << 20)
        for most, rows in {(1 << 20) - 1: 1, 1 << 20: 1 << 21}.items():
            with pytest.raises(ImportRefused, match="unpacks to more"):
                _require_bounded_avro(_avro(codec, block, rows), "a.avro", most)
    whole = _avro("null", b"x" * 50)
    for wrong in (_avro("lzo", b""), whole[:10], whole[:-40]):
        with pytest.raises(ValueError):
            _require_bounded_avro(wrong, "a.avro", 1 << 20)


def test_P67_a_file_of_iceberg_that_became_a_link_is_refused(table: Any, tmp_path: Path) -> None:
    mine = tmp_path / "mine.parquet"
    parquet.write_table(pa.table({"x": [666]}, SCHEMA), mine)
    with IcebergSource(table.metadata_location) as source:
        rows = source.rows([])
        (file,) = (tmp_path / "lake").rglob("*.parquet")
        file.unlink()
        file.symlink_to(mine)
        with pytest.raises(ImportRefused, match="which is not below"):
            list(source.batches(rows))


def write_bomb(file: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 9_000, pa.int32()), ["x" * (1 << 20)])
    parquet.write_table(
        pa.table({"v": texts}), file, compression="zstd", dictionary_pagesize_limit=1 << 30
    )


def test_P65_a_data_file_of_iceberg_that_unpacks_to_much_is_refused(
    table: Any, tmp_path: Path
) -> None:
    from pyiceberg import types

    with table.update_schema() as update:
        update.add_column("v", types.StringType())
    (written,) = (tmp_path / "lake").rglob("*.parquet")
    file = written.with_name("bomb.parquet")
    write_bomb(file)
    table.add_files([f"file://{file}"])
    with (
        IcebergSource(table.metadata_location) as source,
        pytest.raises(CorruptFile, match=r"bomb\.parquet: row group 0 takes few bytes"),
    ):
        list(source.batches(source.rows([])))


@pytest.mark.parametrize("where", ["data", "log"])
def test_P65_a_file_of_delta_that_unpacks_to_much_is_refused(tmp_path: Path, where: str) -> None:
    deltalake = pytest.importorskip("deltalake", reason="pip install 'acid-platform[import]'")
    folder = tmp_path / "in"
    deltalake.write_deltalake(str(folder), pa.table({"v": ["x"]}))
    if where == "log":
        write_bomb(folder / "_delta_log" / f"{0:020}.checkpoint.parquet")
        with pytest.raises(CorruptFile, match=r"checkpoint\.parquet: row group 0 takes few bytes"):
            DeltaSource(str(folder))
        return
    (file,) = folder.glob("*.parquet")
    write_bomb(file)
    source = DeltaSource(str(folder))
    with pytest.raises(CorruptFile, match="row group 0 takes few bytes"):
        list(source.batches(source.rows([])))


def test_P67_a_file_of_delta_that_became_a_link_is_refused(tmp_path: Path) -> None:
    file = delta_lake(tmp_path / "in")
    source = DeltaSource(str(tmp_path / "in"))
    file.rename(tmp_path / "mine.parquet")
    file.symlink_to(tmp_path / "mine.parquet")
    with pytest.raises(ImportRefused, match="which is not below"):
        list(source.batches(source.rows([])))


@pytest.mark.more
def test_P65_texts_of_duckdb_that_unpack_to_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "long.duckdb")
    with duckdb.connect(file) as database:
        database.execute("CREATE TABLE t AS SELECT repeat('x', 1000000) v FROM range(200)")
    assert os.path.getsize(file) < 2_000_000
    monkeypatch.setattr(import_sources, "LARGEST_DATABASE", 128 << 20)
    with DuckDBSource(file, "t") as source, pytest.raises(ImportRefused, match="Out of Memory"):
        list(source.batches(source.rows([])))


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", ["x.duckdb.wal", "x.duckdb.wal.recovery"])
def test_P67_what_lies_beside_a_file_of_duckdb_is_looked_at(
    tmp_path: Path, name: str, kind: str
) -> None:
    with duckdb.connect(str(tmp_path / "x.duckdb")) as database:
        database.execute("CREATE TABLE t AS SELECT 1 v")
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(ImportRefused, match="it is no file, and reading it may not end"):
        DuckDBSource(str(tmp_path / "x.duckdb"), "t")


@pytest.mark.more
def test_P65_rows_of_duckdb_come_in_batches_of_few_bytes(tmp_path: Path) -> None:
    file = str(tmp_path / "wide.duckdb")
    with duckdb.connect(file) as database:
        database.execute(
            "CREATE TABLE wide AS SELECT i, repeat('x', 200000) v FROM range(2000) _(i)"
        )
        database.execute("CREATE TABLE narrow AS SELECT i FROM range(300000) _(i)")
    with DuckDBSource(file, "wide") as source:
        batches = list(source.batches(source.rows([])))
        assert sum(batch.num_rows for batch in batches) == 2000
        assert max(batch.nbytes for batch in batches) < 2 * BATCH_BYTES
    with DuckDBSource(file, "narrow") as source:
        assert next(source.batches(source.rows([]))).num_rows >= 1 << 17


def test_P67_a_hint_names_a_metadata_file_beside_it(table: Any, tmp_path: Path) -> None:
    directory = Path(table.metadata_location.removeprefix("file://")).parent
    hint = directory / "version-hint.text"
    hint.write_text(Path(table.metadata_location).name)
    with IcebergSource(str(directory.parent)) as source:
        assert source.rows([]).read_all().num_rows == 1
    hint.write_text(f"../../../{table.metadata_location.removeprefix('file://')}")
    with pytest.raises(ImportRefused, match="no file beside it"):
        IcebergSource(str(directory.parent))


def test_P68_pyiceberg_reads_no_configuration_of_another_user(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_files, "_own", lambda _: set())
    with IcebergSource(table.metadata_location):
        pass
    (tmp_path / ".pyiceberg.yaml").write_text("catalog: {}")
    with pytest.raises(OwnedByOthers, match=str(tmp_path)):
        IcebergSource("shop.t", "made")


# --- DuckDB ---------------------------------------------------------------------------------------


@pytest.fixture
def duck(tmp_path: Path) -> tuple[str, str]:
    """A file of DuckDB that would read another file wherever it can, and that other file."""
    file, secret = str(tmp_path / "theirs.duckdb"), tmp_path / "mine.txt"
    secret.write_text("SECRET")
    reads = f"SELECT content AS x FROM read_text('{secret}')"
    with duckdb.connect(file) as database:
        for statement in (
            f"CREATE VIEW v AS {reads}",
            f"CREATE MACRO m() AS ({reads})",
            f"CREATE MACRO t() AS TABLE {reads}",
            f"CREATE MACRO count(x) AS ({reads})",
            "CREATE SCHEMA other",
            f"CREATE VIEW other.t AS {reads}",
            "CREATE TABLE t AS SELECT 1 AS x, 'a'::ENUM('a', 'b') AS kind",
            "CREATE TABLE source (x INT)",
            "CREATE SCHEMA source",
            f"CREATE VIEW source.t AS {reads}",
            "CREATE TABLE computed (x INT, y VARCHAR GENERATED ALWAYS AS (repeat('x', x)))",
            "INSERT INTO computed VALUES (1)",
            "CREATE SEQUENCE s",
            "CREATE TABLE counted (x INT DEFAULT nextval('s'), CHECK (x > 0))",
            "INSERT INTO counted VALUES (DEFAULT)",
        ):
            database.execute(statement)
    return file, str(secret)


@pytest.mark.parametrize(
    "name", ["v", "m", "m()", "other.t", "source.t", "duckdb_settings", "system.main.t", "nope"]
)
def test_P67_only_tables_of_a_file_of_duckdb_are_read(duck: tuple[str, str], name: str) -> None:
    with pytest.raises(ImportRefused, match=r"is no table of the file: its tables are main\."):
        DuckDBSource(duck[0], name)


def test_P67_what_a_table_of_duckdb_computes_is_not_run(duck: tuple[str, str]) -> None:
    with pytest.raises(ImportRefused, match=r"column 'y' is computed by .*repeat"):
        DuckDBSource(duck[0], "computed")
    for name, columns in {"computed": ["x"], "MAIN.T": ["x"], "counted": None}.items():
        with DuckDBSource(duck[0], name, columns) as source:
            assert source.rows([]).read_all().to_pylist() == [{"x": 1}]
            assert source.rows_known == 1


def test_P67_a_database_reaches_nothing_but_the_files_that_it_was_given(
    duck: tuple[str, str],
) -> None:
    file, secret = duck
    x = object()  # DuckDB takes variables for tables, if it may
    with databases.in_memory({"theirs": Path(file)}) as database:
        for query in (
            f"FROM read_text('{secret}')",
            f"FROM '{secret}'",
            "FROM x",
            "FROM theirs.v",
            "FROM theirs.t()",
            f"ATTACH '{secret}' AS more",
            f"COPY theirs.t TO '{secret}'",
            f"EXPORT DATABASE '{secret}'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "FROM 'https://example.org/a.parquet'",
            "CREATE PERSISTENT SECRET s (TYPE s3)",
            "INSERT INTO theirs.t VALUES (2, 'a')",
            "SET enable_external_access = true",
            "SET temp_directory = '/tmp'",
            "RESET lock_configuration",
        ):
            with pytest.raises(databases.Error):
                database.execute(query).fetchall()
        assert x is not None
        spills = database.execute("SELECT current_setting('temp_directory')").fetchone()
        assert spills and os.stat(Path(spills[0]).parent).st_mode & 0o777 == 0o700


# --- links in directories -------------------------------------------------------------------------


def delta(folder: Path) -> DeltaSource:
    return DeltaSource(str(folder))


def delta_lake(folder: Path) -> Path:
    deltalake = pytest.importorskip("deltalake", reason="pip install 'acid-platform[import]'")
    deltalake.write_deltalake(str(folder), pa.table({"x": [1]}, SCHEMA))
    return next(folder.glob("*.parquet"))


def parquet_folder(folder: Path) -> Path:
    folder.mkdir()
    parquet.write_table(pa.table({"x": [1]}, SCHEMA), folder / "a.parquet")
    return folder / "a.parquet"


def csv_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.csv").write_text("x\n1\n")
    return folder / "a.csv"


@pytest.mark.parametrize(
    "make, source",
    [
        (delta_lake, DeltaSource),
        (parquet_folder, FolderSource),
        (csv_folder, lambda folder, **more: FolderSource(folder, "csv", **more)),
    ],
)
@pytest.mark.parametrize("linked", ["the file", "its directory"])
def test_P67_a_link_out_of_a_source_is_refused(
    tmp_path: Path, make: Callable[[Path], Path], source: Callable[..., Any], linked: str
) -> None:
    folder, mine = tmp_path / "in", tmp_path / "mine"
    file = make(folder)
    mine.mkdir()
    os.rename(file, mine / file.name)
    if linked == "the file":
        file.symlink_to(mine / file.name)
    elif source is DeltaSource:
        pytest.skip("its log names files, and no directories")
    else:
        (folder / "day=1").symlink_to(mine)
    with pytest.raises(ImportRefused, match=r"which is not below .*/in: a source may not have"):
        source(str(folder))
    source(str(folder), files_in=[str(mine)]).close()


@pytest.mark.parametrize("linked", ["the file", "its directory"])
@pytest.mark.parametrize("kind, text", [("csv", "x\n666\n"), ("json", '{"x":666}')])
def test_P67_a_link_that_is_made_after_the_look_is_refused(
    tmp_path: Path, kind: str, text: str, linked: str
) -> None:
    below, mine = tmp_path / "in" / "day=1", tmp_path / "mine"
    for directory in (below, mine):
        directory.mkdir(parents=True)
        (directory / f"a.{kind}").write_text(text)
    source = FolderSource(str(tmp_path / "in"), kind)
    assert source.schema.names == ["x", "day"]
    if linked == "the file":
        (below / f"a.{kind}").unlink()
        (below / f"a.{kind}").symlink_to(mine / f"a.{kind}")
    else:
        below.rename(tmp_path / "old")
        below.symlink_to(mine)
    with pytest.raises(ImportRefused, match=r"which is not below .*/in: a source may not have"):
        list(source.batches(source.rows([])))


@pytest.mark.parametrize("version, statistics", [("1.0", True), ("2.0", False)])
def test_P65_a_footer_that_says_less_than_the_pages_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, statistics: bool
) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(
        pa.table({"v": [bytes(1 << 20)] * 24}),
        file,
        compression="zstd",
        use_dictionary=False,
        data_page_version=version,
        write_statistics=statistics,
    )
    group = parquet.read_metadata(file).row_group(0)
    content = file.read_bytes()
    for size in {group.column(0).total_uncompressed_size, group.total_byte_size}:
        said = bytes(size * 2 >> shift & 127 | 128 for shift in (0, 7, 14, 21))
        said = said[:-1] + bytes([said[-1] & 127])
        assert said in content[-1000:]
        content = content.replace(said, b"\x80\x81\x80\0")
    file.write_bytes(content)
    assert parquet.read_metadata(file).row_group(0).column(0).total_uncompressed_size == 64
    monkeypatch.setattr(parquet_pages, "LARGEST_PIECE", 1 << 20)
    monkeypatch.setattr(formats, "_bounded", None)  # nothing is read
    source = FolderSource(str(tmp_path))
    with pytest.raises(CorruptFile, match="row group 0 takes few bytes"):
        list(source.batches(source.rows([])))


def _thrift(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def _after_footer(content: bytes, changed: bytes) -> bytes:
    length = int.from_bytes(content[-8:-4], "little")
    return content[: -8 - length] + changed + len(changed).to_bytes(4, "little") + b"PAR1"


def _with_list_in_header(content: bytes) -> bytes:
    """The first page's header begins with an unknown list, which Arrow passes over."""
    group = parquet.read_metadata(pa.BufferReader(content)).row_group(0)
    column, length = group.column(0), int.from_bytes(content[-8:-4], "little")
    footer, at = content[-8 - length : -8], column.data_page_offset
    assert content[at] == 0x15  # field 1
    more = b"\x09" + _thrift(200) + b"\x13\x01" + b"\x05\x02"
    for said, instead in (
        (column.total_compressed_size, column.total_compressed_size + len(more) - 1),
        (column.total_uncompressed_size, 100),
        (group.total_byte_size, 100),
    ):
        footer = footer.replace(_thrift(2 * said), _thrift(2 * instead))
    return _after_footer(content[:at] + more + content[at + 1 :], footer)


def _replaced(of: bytes, by: bytes) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        assert of in content
        return content.replace(of, by)

    return changed


_TEXT = b"x" * (1 << 16)
_REPEATED = pa.DictionaryArray.from_arrays(pa.array([0] * 600, pa.int32()), [_TEXT])
_FIXED = pa.array([_TEXT] * 600, pa.binary(1 << 16))
_LISTS = pa.array([[0] * 400_000], pa.list_(pa.int64()))
LIES: dict[str, tuple[Any, bool, Callable[[bytes], bytes]]] = {
    "a list in the header of a page": (pa.array([_TEXT] * 600), False, _with_list_in_header),
    "another encoding": (_REPEATED, True, _replaced(b"\0\x06\x10", b"\0\x06\0")),
    "another type": (_REPEATED, True, _replaced(b"\x15\x0c\x19", b"\x15\x02\x19")),
    "a fixed length": (_FIXED, True, bytes),
    "all values in a row": (_LISTS, True, bytes),
}


@pytest.mark.parametrize("case", LIES)
def test_P65_what_a_footer_of_parquet_says_of_its_pages_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    column, dictionary, changed = LIES[case]
    content = io.BytesIO()
    parquet.write_table(
        pa.table({"v": column}),
        content,
        compression="zstd",
        use_dictionary=dictionary,
        store_schema=False,
        write_statistics=False,
        data_page_size=1 << 30,
        dictionary_pagesize_limit=1 << 30,
    )
    (tmp_path / "a.parquet").write_bytes(changed(content.getvalue()))
    monkeypatch.setattr(parquet_pages, "LARGEST_PIECE", 1 << 20)
    monkeypatch.setattr(parquet_pages, "BATCH_BYTES", 1 << 20)
    asked = []

    def bounded(*arguments: Any) -> Any:
        asked.append(arguments[-2])
        return read(*arguments)

    read = formats._bounded
    monkeypatch.setattr(formats, "_bounded", bounded)
    source = FolderSource(str(tmp_path))
    with pytest.raises((CorruptFile, ImportRefused)):
        list(source.batches(source.rows([])))
    of_a_row = len(_TEXT) if column is not _LISTS else 8 * 400_000
    assert all(rows * of_a_row <= 1 << 20 for rows in asked)


def test_P65_a_footer_of_parquet_with_too_many_columns_is_refused(tmp_path: Path) -> None:
    """Each takes three bytes here, and hundreds in memory."""
    columns, groups = 900_000, 5
    group = b"\x19\xfc" + _thrift(columns) + b"\x26\x02\x00" * columns + b"\x16\x02\x16\x02\x00"
    schema = b"\x48\x01s\x15\x02\x00\x15\x02\x25\x02\x18\x01a\x00"
    footer = b"\x15\x02\x19\x2c" + schema + b"\x16\x00\x19" + bytes([groups << 4 | 12])
    content = _after_footer(b"PAR1" + bytes(8), footer + group * groups + b"\x00")
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(CorruptFile, match="more than 1,048,576 columns in its row groups"):
        FolderSource(str(tmp_path))


def test_P65_a_header_of_a_page_takes_no_time_by_its_numbers() -> None:
    long = b"\x15" + b"\xff" * (1 << 20)
    with pytest.raises(CorruptFile, match="header of a page of Parquet at byte 0"):
        parquet_pages.page_at(pa.BufferReader(long), 0, "a.parquet")
    deep = b"\x1c" * (1 << 20)
    with pytest.raises(CorruptFile, match="header of a page of Parquet at byte 0"):
        parquet_pages.page_at(pa.BufferReader(deep), 0, "a.parquet")


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
@pytest.mark.parametrize("name", ["x.duckdb", "x.metadata.json"])
def test_P67_what_is_no_file_is_not_read(tmp_path: Path, kind: str, name: str) -> None:
    """Reading a pipe that nobody writes, or a device, would not end."""
    if "duckdb" not in name:
        pytest.importorskip("pyiceberg")
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(ImportRefused, match="it is no file, and reading it may not end"):
        DuckDBSource(str(path), "t") if "duckdb" in name else IcebergSource(str(path))
