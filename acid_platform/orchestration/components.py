"""Components for `dg`: tables as YAML.

`SqlAssetComponent` fills a table from a file of SQL, `TableAssetComponent` from a file of rows or
by a Python function: each is a way to write an `acid_asset`. `ExternalAssetsComponent` shows the
tables and views that others make and fill. `dg scaffold defs` writes an instance of each, and
an `acid_asset` in Python.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.lib.executable_component.function_component import ResolvableCallable
from dagster.components.resolved.core_models import ResolvedAssetAttributes
from pydantic import Field

from acid_platform.base.local_files import require_regular
from acid_platform.base.paths import user_path
from acid_platform.display.markdown_text import code_block, escaped_text
from acid_platform.engine.interface import Result
from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    InvalidExpression,
    UnsupportedStatement,
    WrongType,
)
from acid_platform.handles.csv_files import PARSED, CsvFormat, NoValue
from acid_platform.handles.folder_source import parquet_rows
from acid_platform.handles.transaction import Transaction
from acid_platform.layout.names import table_name
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column, parse_columns
from acid_platform.metastore.client.lineage_events import Columns, RowOrigin
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import ViewRecord
from acid_platform.orchestration.checks import Expectation, expectations_of, require_columns
from acid_platform.orchestration.decorators import acid_asset
from acid_platform.orchestration.history import History
from acid_platform.orchestration.metadata import (
    TABLE_KIND,
    TableDeclaration,
    asset_key,
    declared_metadata,
    table_lineage,
    table_schema,
)
from acid_platform.orchestration.outputs import SchemaMode, WriteMode
from acid_platform.orchestration.resources import WarehouseResource
from acid_platform.orchestration.scaffolding import (
    ExternalAssetsScaffolder,
    PythonAssetScaffolder,
    SqlAssetScaffolder,
    TableAssetScaffolder,
)
from acid_platform.scan import text_values
from acid_platform.sql.scripts import (
    bound,
    column_lineage,
    column_names,
    group_columns,
    parameters_of,
    tables_of_script,
)
from acid_platform.sql.text import Query, query
from acid_platform.storage.files import Files
from acid_platform.transactions import Isolation
from acid_platform.values.arrow_types import arrow_type

_PARAMETER = re.compile(r"\{(\w+)\}")

dg.scaffold_with(PythonAssetScaffolder)(acid_asset)


class ExpectationYaml(dg.Model, dg.Resolvable):
    """An expectation of Great Expectations, which is a check of the asset."""

    name: str
    kind: str = Field(examples=["ExpectColumnValuesToNotBeNull"])
    arguments: Mapping[str, Any] = {}
    description: str = ""
    blocking: bool = True
    quarantine: bool = False


class _Table(dg.Component, dg.Model, dg.Resolvable):
    """The table of an asset, as the arguments of `acid_asset`."""

    table: str = Field(description="The name of the table.", examples=["shop.orders"])
    columns: str | None = Field(
        default=None,
        description="Names and types; without them the columns of the first rows.",
        examples=["id int, amount decimal(9,2)"],
    )
    partitioned_by: Sequence[str] = Field(default=(), examples=[["day date"]])
    comment: str = Field(
        default="", description="The comment of the table, and the description of the asset."
    )
    comments: Mapping[str, str] | None = Field(
        default=None, description="The comments of columns.", examples=[{"amount": "in euros"}]
    )
    properties: Mapping[str, str] | None = None
    write_mode: WriteMode = "overwrite"
    key: Sequence[str] = Field(
        default=(), description="Columns, for upsert, delete+insert and history, and samples."
    )
    history: History | None = Field(
        default=None, description="What the rows say of versions, for history."
    )
    partition_expr: str | Mapping[str, str] | None = Field(
        default=None, description="The table's partition of a run.", examples=["day"]
    )
    schema_mode: SchemaMode = "error"
    coerce: bool = False
    isolation: Isolation = "snapshot"
    expectations: Sequence[ExpectationYaml] = ()
    suites: Sequence[str] = Field(
        default=(),
        description="Suites of Great Expectations: JSON files, beside defs.yaml.",
        examples=[["orders.json"]],
    )
    asset: ResolvedAssetAttributes | None = Field(
        default=None, description="Attributes of the asset: partitions_def, group_name, owners, …"
    )

    def _declared(
        self,
        place: Path,
        body: Callable[..., object],
        deps: Sequence[dg.AssetKey] = (),
        kinds: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        query: Query | None = None,
    ) -> dg.Definitions:
        """The asset of the table with this body, whose files are in `place`; it has `kinds` unless
        the YAML names others. Of the rows of a `query` the columns may be known: an overwritten
        table has values in no other column, while the rows of others may have some."""
        columns = column_names(query) if query else None
        keys = parse_columns(", ".join(self.partitioned_by)) if self.partitioned_by else ()
        known = (
            {each.name for each in (*parse_columns(self.columns), *keys)} if self.columns else None
        )
        expectations = expectations_of(
            [
                *(Expectation(**each.model_dump()) for each in self.expectations),
                *(Path(user_path(suite, place)) for suite in self.suites),
            ],
            f"asset of {self.table}",
        )
        if self.columns is None and columns is not None and self.write_mode == "overwrite":
            names = [*columns, *(key.name for key in keys)]
            advice = " (declare them if the table has more)"
            require_columns(expectations, names, f"asset of {self.table}", advice)
        attributes = dict(self.asset or {})
        spec = {
            **({"description": self.comment} if self.comment else {}),
            **attributes,
            "kinds": {*attributes.get("kinds", (TABLE_KIND, *kinds))},
            "deps": [*deps, *(attributes.get("deps") or ())],
            "metadata": {**(metadata or {}), **attributes.get("metadata", {})},
        }
        decorated = acid_asset(
            table=TableDeclaration(
                self.table,
                self.columns,
                tuple(self.partitioned_by),
                self.properties,
                self.comments,
                comment=self.comment,
            ),
            write_mode=self.write_mode,
            key=self.key or (group_columns(query, known) if query else ()),
            partition_expr=self.partition_expr,
            expectations=expectations,
            schema_mode=self.schema_mode,
            coerce=self.coerce,
            isolation=self.isolation,
            history=self.history,
            **spec,
        )
        return dg.Definitions([decorated(body)])

    @property
    def _partitions(self) -> dg.PartitionsDefinition[str] | None:
        return (self.asset or {}).get("partitions_def")

    def _require_parameters(self, names: Collection[str], place: str) -> None:
        """Raises InvalidDefinition for a name that no run of the asset has a value for."""
        definition = self._partitions
        if names and definition is None:
            raise InvalidDefinition(
                f"{place} has the parameter {min(names)}, but the asset has no partitions; give it"
                " asset: {partitions_def: …}"
            )
        values = {"partition_key"}
        if isinstance(definition, dg.MultiPartitionsDefinition):
            values.update(dimension.name for dimension in definition.partitions_defs)
        if unknown := sorted(set(names) - values):
            raise InvalidDefinition(
                f"{place} has the parameter {unknown[0]}; there are {', '.join(sorted(values))}"
            )


def _values(context: dg.AssetExecutionContext, names: Collection[str]) -> dict[str, str]:
    """The values of the names in the run. Raises InvalidDefinition if it is for several keys."""
    if not names:
        return {}
    [key, *others] = context.partition_keys
    if others:
        raise InvalidDefinition(
            f"{min(names)} is one partition, but this run has {len(others) + 1}; run them one by"
            " one, or leave the parameter out"
        )
    dimensions = key.keys_by_dimension if isinstance(key, dg.MultiPartitionKey) else {}
    values = {"partition_key": str(key), **dimensions}
    return {name: values[name] for name in names}


# --- SQL -----------------------------------------------------------------------------------------


@dg.scaffold_with(SqlAssetScaffolder)
class SqlAssetComponent(_Table):
    """A table that a file of Hive's SQL fills, in one transaction.

    The file has one SELECT, whose rows are written according to `write_mode`, or statements that
    change the rows of the table. The tables that it reads are upstream of the asset. A name without
    a database is in `default`. In an asset with partitions, `:partition_key` is the run's, or
    `:<dimension>` the part of it for each dimension.
    """

    sql: str = Field(description="The file, beside defs.yaml.", examples=["totals.sql"])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Raises InvalidDefinition, which names the file if its text is the reason, and OSError."""
        path, own = Path(user_path(self.sql, context.path)), table_name(self.table)
        script = path.read_text()
        names = parameters_of(script)
        self._require_parameters(names, str(path))
        try:
            tables = tables_of_script(bound(script, dict.fromkeys(names, "")))
        except (InvalidExpression, UnsupportedStatement) as error:
            raise InvalidDefinition(f"{path}: {error}") from error
        if others := tables.changes - {own}:
            raise InvalidDefinition(f"{path} changes {min(others)}, but the asset fills {own}")
        if tables.changes and any(each.quarantine for each in self.expectations):
            raise InvalidDefinition(
                f"{path} changes {own} by itself, and quarantine sets aside the rows of one SELECT"
            )
        replaces = self.write_mode == "overwrite" and not tables.changes
        if self._partitions and replaces and self.partition_expr is None:
            raise InvalidDefinition(
                f"{own} is partitioned, so partition_expr must say which partition of the table a"
                " run replaces"
            )

        def run(context: dg.AssetExecutionContext, txn: Transaction) -> object:
            answer = txn.sql(script, _values(context, names) or None)
            if tables.query is None:
                return None
            sources = _lineage(context, txn, tables.query)
            context.add_asset_metadata(table_lineage(sources) if sources else {})
            reads = frozenset(tables.reads)
            txn.derived.origins[own] = [RowOrigin(tables.query.text, reads, lambda: sources)]
            return answer

        upstream = [asset_key(name) for name in sorted(tables.reads - {own})]
        shown = {"sql": dg.MetadataValue.md(code_block(script, "sql"))}
        return self._declared(context.path, run, upstream, ["sql"], shown, tables.query)


def _lineage(context: dg.AssetExecutionContext, txn: Transaction, query: Query) -> Columns:
    """By column those that it is computed of; empty for a query whose columns are not resolved."""

    def columns_of(name: str) -> list[str]:
        shown = txn.sql(f"SHOW COLUMNS IN {'.'.join(map(quoted, name.split('.')))}")
        assert isinstance(shown, Result)
        return [name for (name,) in shown.collect()]

    try:
        return column_lineage(query, columns_of)
    except UnsupportedStatement as error:
        context.log.info(f"no lineage of columns: {error}")
        return {}


# --- files and functions -------------------------------------------------------------------------


@dg.scaffold_with(TableAssetScaffolder)
class TableAssetComponent(_Table):
    """A table of the rows of a file, or of those that a Python function returns.

    A CSV file has a header; a field without text and quotes is NULL. A JSON file has an object in
    each line, or one array of objects. `{partition_key}` in the path is the run's, or
    `{<dimension>}` the part of it for each dimension. The function is the body of an `acid_asset`:
    its parameters are upstream tables, resources, `context` and `txn`.
    """

    source: str | None = Field(
        default=None,
        description="A .csv, .json, .jsonl or .parquet file: its path from defs.yaml, or its URI.",
        examples=["landing/{partition_key}.csv"],
    )
    function: ResolvableCallable | None = Field(
        default=None, description="Its module and name.", examples=["assets.loading.orders"]
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Raises InvalidDefinition."""
        if (self.source is None) == (self.function is None):
            raise InvalidDefinition(f"{self.table}: give a source or a function, one of them")
        if self.function is not None:
            return self._declared(context.path, self.function, kinds=["python"])
        folder, source, columns = context.path, str(self.source), self.columns
        kind = source.rpartition(".")[2].lower()
        if kind not in _READERS:
            raise InvalidDefinition(f"{source}: a source is a .{', a .'.join(_READERS)} file")
        if columns is None and kind == "csv":
            raise InvalidDefinition(
                f"{self.table}: a CSV file has no types, so declare the columns"
            )
        declared = [text for text in (columns, *self.partitioned_by) if text]
        every = parse_columns(", ".join(declared)) if declared else ()
        names = frozenset(_PARAMETER.findall(source))
        self._require_parameters(names, f"source: {source}")

        def rows(context: dg.AssetExecutionContext) -> object:
            values = _values(context, names)
            return rows_of(_path_of(source, values, folder), every)

        return self._declared(folder, rows, kinds=[kind.removesuffix("l")])


def _path_of(source: str, values: Mapping[str, str], place: Path) -> str:
    """The path of a run's file. Raises InvalidDefinition for a key that leads out of the directory
    that the source names before it: keys may come from others (P67)."""
    path = user_path(_PARAMETER.sub(lambda name: values[name[1]], source), place)
    named = source.partition("{")[0].rpartition("/")[0] if values else source.rpartition("/")[0]
    above = user_path(named or ("/" if source.startswith("/") else "."), place).rstrip("/")
    if values and (".." in path.split("/") or not path.startswith(f"{above}/")):
        raise InvalidDefinition(
            f"source: {source} with {', '.join(map(repr, values.values()))} is {path}, which is"
            f" outside of {above}: give the partition another key"
        )
    return path


def rows_of(path: str, columns: Sequence[Column]) -> pa.Table | list[dict[str, Any]]:
    """The rows of a CSV, JSON or Parquet file, for a table with these columns.

    Raises WrongType for text that is no value of its column, CorruptFile, and OSError.
    """
    files, where = Files.of(path)
    if files.local:
        require_regular(where)
    with files.system.open_input_file(where) as file:
        try:
            kind = path.rpartition(".")[2].lower()
            return _READERS[kind](file, path, columns)
        except (pa.ArrowInvalid, ValueError, InvalidDefinition) as error:
            raise WrongType(f"{path}: {error}") from error


def _of_csv(file: Any, _: str, columns: Sequence[Column]) -> pa.Table:
    data, form = file.read(), CsvFormat()
    names = form.names(io.BytesIO(data))
    kinds = {column.name: column.type for column in columns}
    types = {
        name: arrow_type(kinds[name.lower()])
        if name.lower() in kinds and kinds[name.lower()].kind in PARSED
        else pa.string()
        for name in names
    }
    try:
        return pa.Table.from_batches(form.batches(io.BytesIO(data), types, names), pa.schema(types))
    except NoValue as error:
        line = form.place_of(io.BytesIO(data), error.row)
        raise ValueError(f"{line}: {error}") from error


def _of_json(file: Any, _path: str, _columns: Sequence[Column]) -> list[dict[str, Any]]:
    """A number with a point is a Decimal, as it is written."""
    return [row for _, row, _ in text_values.rows(file)]


_READERS: Mapping[str, Callable[[Any, str, Sequence[Column]], Any]] = {
    "csv": _of_csv,
    "json": _of_json,
    "jsonl": _of_json,
    "parquet": parquet_rows,
}


_MERGED = ("deps", "kinds", "metadata", "owners", "tags")
"""Attributes of the YAML that are added to what the metastore knows; others replace it."""


@dg.scaffold_with(ExternalAssetsScaffolder)
class ExternalAssetsComponent(dg.StateBackedComponent, dg.Model, dg.Resolvable):
    """Tables and views that Trino, Hive, `acid sql` or notebooks make and fill.

    Each is an external asset with its columns and comments; `commit_sensor` shows the commits to a
    table. A view is a virtual asset: it is downstream of what it reads, shows which columns its
    columns are computed of, and automation conditions can look through it.
    """

    tables: Sequence[str] = Field(
        description="Tables and views; * is any text, and a name without a dot is one of"
        " the database default. A name without * is shown in any case, unless it is excluded.",
        examples=[["hr.*", "shop.large_orders"]],
    )
    exclude: Sequence[str] = Field(
        default=(), description="Tables of these that assets fill; * is any text."
    )
    warehouse: str | None = Field(
        default=None, description="Directory or URI; as that of WarehouseResource without it."
    )
    metastore: str | None = Field(default=None, description="As that of WarehouseResource.")
    asset: ResolvedAssetAttributes | None = Field(
        default=None, description="Attributes of each asset: group_name, owners, tags, …"
    )
    defs_state: ResolvedDefsStateConfig = Field(
        default_factory=DefsStateConfigArgs.local_filesystem
    )

    @property
    def defs_state_config(self) -> DefsStateConfig:
        names = ",".join([*self.tables, *(f"-{name}" for name in self.exclude)])
        return DefsStateConfig.from_args(self.defs_state, f"{type(self).__name__}[{names}]")

    def write_state_to_path(self, state_path: Path) -> None:
        """Without a warehouse there nothing is known, and none is made: its path may be misspelt.

        Raises what opening a warehouse raises.
        """
        resource = WarehouseResource(path=self.warehouse, metastore=self.metastore)
        found: dict[str, Any] = {}
        if resource.location.made:
            with resource.open() as opened:
                found = dict(_known(opened.metastore))
        else:
            dg.get_dagster_logger().warning(
                f"there is no warehouse at {resource.location.warehouse} yet, so nothing is known"
                " of its tables; refresh the state of the definitions once it is there"
            )
        chosen = {
            name: attributes
            for name, attributes in found.items()
            if _matches(name, self.tables) and not _matches(name, self.exclude)
        }
        state_path.write_text(dg.serialize_value(chosen))

    def build_defs_from_state(
        self,
        context: dg.ComponentLoadContext,  # noqa: ARG002
        state_path: Path | None,
    ) -> dg.Definitions:
        known = dg.deserialize_value(state_path.read_text(), dict) if state_path else {}
        named = {table_name(name) for name in self.tables if "*" not in name}
        shown = {name for name in named if not _matches(name, self.exclude)}
        names = sorted({*known, *shown})
        return dg.Definitions([self._spec(name, known.get(name, {})) for name in names])

    def _spec(self, name: str, known: Mapping[str, Any]) -> dg.AssetSpec:
        own = dict(self.asset or {})
        merged = {attribute: own.pop(attribute) for attribute in _MERGED if attribute in own}
        spec = dg.AssetSpec(
            asset_key(name),
            deps=[asset_key(upstream) for upstream in known.get("reads", ())],
            description=known.get("comment"),
            kinds={known.get("kind", TABLE_KIND)},
            metadata={"dagster/table_name": name, **known.get("metadata", {})},
        )
        # Not as an argument of AssetSpec, which warns that virtual assets are a preview.
        virtual = "reads" in known
        return spec.merge_attributes(**merged).replace_attributes(**own, is_virtual=virtual)


_LITERAL = str.maketrans({"[": "[[]", "?": "[?]"})
"""What else than * means something to `fnmatch`, and may be part of a name."""


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, table_name(each).translate(_LITERAL)) for each in patterns)


def _known(metastore: Metastore) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is shown of each table and view, by its name."""
    tables, views = metastore.tables(), metastore.views()
    columns = {view.name: [name for name, _ in view.columns] for view in views}
    for table in tables:
        columns[table.name] = [name for name, _ in (*table.columns, *table.partition_columns)]
        comment = escaped_text(table.properties.get("comment") or "") or None
        yield table.name, {"comment": comment, "metadata": declared_metadata(table)}
    for view in views:
        metadata = {"dagster/column_schema": table_schema(view.columns, (), view.comments, ())}
        comment = escaped_text(view.properties.get("comment") or "") or None
        shown = {"comment": comment, "metadata": metadata}
        if view.external:  # files that belong to somebody else
            yield view.name, {**shown, "kind": view.external.format}
        else:
            metadata |= _of_query(view, columns)
            reads = [name for name, _ in view.reads]
            yield view.name, {**shown, "kind": "view", "reads": reads}


def _of_query(view: ViewRecord, columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    shown = {"sql": dg.MetadataValue.md(code_block(view.query, "sql"))}
    try:
        sources = column_lineage(query(view.query), lambda name: columns.get(name, ()))
    except AcidError:  # somebody's text that is not parsed or resolved here
        return shown
    return {**shown, **table_lineage(sources)}
