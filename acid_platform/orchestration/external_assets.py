"""A component for `dg`: tables and views that others make and fill, as external assets.

What the metastore knows of them is Dagster's state of definitions: `dg dev` asks for it when it
starts, `dg utils refresh-defs-state` when it is called, and definitions load without a warehouse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.resolved.core_models import ResolvedAssetAttributes
from pydantic import Field

from acid_platform.errors import AcidError
from acid_platform.layout.declarable import table_name
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import ViewRecord
from acid_platform.orchestration import markdown
from acid_platform.orchestration.metadata import (
    asset_key,
    declared_metadata,
    table_lineage,
    table_schema,
)
from acid_platform.orchestration.resources import WarehouseResource
from acid_platform.orchestration.scaffolding import ExternalAssetsScaffolder
from acid_platform.sql.scripts import column_lineage
from acid_platform.sql.text import query

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
            kinds={known.get("kind", "orc")},
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
        comment = markdown.as_text(table.properties.get("comment") or "") or None
        yield table.name, {"comment": comment, "metadata": declared_metadata(table)}
    for view in views:
        metadata = {"dagster/column_schema": table_schema(view.columns, (), view.comments, ())}
        comment = markdown.as_text(view.properties.get("comment") or "") or None
        shown = {"comment": comment, "metadata": metadata}
        if view.external:  # files that belong to somebody else
            yield view.name, {**shown, "kind": view.external.format}
        else:
            metadata |= _of_query(view, columns)
            reads = [name for name, _ in view.reads]
            yield view.name, {**shown, "kind": "view", "reads": reads}


def _of_query(view: ViewRecord, columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    shown = {"sql": dg.MetadataValue.md(markdown.block(view.query, "sql"))}
    try:
        sources = column_lineage(query(view.query), lambda name: columns.get(name, ()))
    except AcidError:  # somebody's text that is not parsed or resolved here
        return shown
    return {**shown, **table_lineage(sources)}
