"""Which table an asset fills, and that no two assets of a code location fill the same one (P57).

Asset keys have letter case and tables have none, and the `schema` of an IO manager is not part of a
key. Two assets of one table would replace each other's rows, while both runs succeed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from acid_platform.errors import InvalidDefinition
from acid_platform.layout.declarable import table_name
from acid_platform.orchestration.metadata import STORAGE_KIND


def stored_in(key: dg.AssetKey, settings: Mapping[str, Any], schema: str | None) -> str:
    """The table of an asset of AcidIOManager; `settings` are its metadata.

    Raises InvalidDefinition for a key of which no database follows.
    """
    if settings.get("dagster/storage_kind") == STORAGE_KIND:  # an asset by @acid_asset
        return str(settings["dagster/table_name"])
    database = settings.get("schema") or schema
    if database is None and len(key.path) > 2:
        raise InvalidDefinition(
            f"the asset {key.to_user_string()} has more parts than a table, a database and a"
            ' name: set metadata={"schema": …}'
        )
    return table_name(f"{database or (['default', *key.path])[-2]}.{key.path[-1]}")


class TableOwner(NamedTuple):
    """An asset and its table. `warehouse`: the path and the metastore as they are configured; None:
    any, as of an external asset, which only names the table."""

    table: str
    key: dg.AssetKey
    warehouse: tuple[object, object] | None


def require_own_tables(assets: Iterable[object]) -> None:
    """Raises InvalidDefinition if two assets have the same table."""
    by_table: dict[str, list[TableOwner]] = {}
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition) and not asset.is_auto_created_stub:
            for owner in _owners(asset):
                by_table.setdefault(owner.table, []).append(owner)
    for table, owners in by_table.items():
        for other in owners[1:]:
            both = {owners[0].warehouse, other.warehouse}
            if other.key != owners[0].key and (len(both) == 1 or None in both):
                keys = (each.key.to_user_string() for each in (owners[0], other))
                raise InvalidDefinition(
                    f"the assets {' and '.join(sorted(keys))} have the same table, {table}, and"
                    " would replace each other's rows: names of tables have no letter case, and"
                    " `schema` names the database; give one of them another name or database, or"
                    " remove it"
                )


def _owners(asset: dg.AssetsDefinition) -> Iterator[TableOwner]:
    for key in asset.keys:
        spec = asset.specs_by_key[key]
        table = spec.metadata.get("dagster/table_name")
        if spec.metadata.get("dagster/storage_kind") == STORAGE_KIND:
            warehouse = None if asset.is_external else _place(asset.resource_defs.get("warehouse"))
            yield TableOwner(str(table), key, warehouse)
        elif asset.is_external:
            if table and "orc" in spec.kinds:  # by ExternalAssetsComponent, not in the state yet
                yield TableOwner(table_name(str(table)), key, None)
        elif asset.is_materializable and not _returns_nothing(asset, key):
            manager = asset.resource_defs.get(asset.get_io_manager_key_for_asset_key(key))
            if _is_ours(manager):
                assert isinstance(manager, dg.ResourceDefinition)
                nested = getattr(manager, "nested_resources", {}).get("warehouse")
                definition = nested and nested.get_resource_definition()
                schema = _settings(manager).get("schema")
                with suppress(InvalidDefinition):  # its run says so
                    table = stored_in(
                        key, spec.metadata, schema if isinstance(schema, str) else None
                    )
                    yield TableOwner(table, key, _place(definition))


def _returns_nothing(asset: dg.AssetsDefinition, key: dg.AssetKey) -> bool:
    """Whether it is annotated with -> None, so that no IO manager stores anything for it."""
    output = asset.node_def.output_def_named(asset.get_output_name_for_asset_key(key))
    return bool(output.dagster_type.is_nothing)


def _is_ours(manager: object) -> bool:
    from acid_platform.orchestration.io_manager import AcidIOManager

    kind = getattr(manager, "configurable_resource_cls", None)
    return isinstance(kind, type) and issubclass(kind, AcidIOManager)


def _place(warehouse: dg.ResourceDefinition | None) -> tuple[object, object]:
    settings = _settings(warehouse)
    return str(settings.get("path")), str(settings.get("metastore"))


def _settings(definition: dg.ResourceDefinition | None) -> Mapping[str, Any]:
    """The settings that the definition has before a run."""
    field = definition.config_field if definition else None
    value = field.default_value if field and field.default_provided else None
    return value if isinstance(value, Mapping) else {}


def _watch() -> None:
    """Lets Dagster look at the tables whenever it builds its graph of assets: it has no hook for a
    resource that wants to see all of them."""
    build = AssetGraph.from_assets.__func__  # type: ignore[attr-defined]

    @functools.wraps(build)
    def from_assets(cls: type[AssetGraph], assets: Iterable[Any]) -> AssetGraph:
        listed = list(assets)
        require_own_tables(listed)
        graph: AssetGraph = build(cls, listed)
        return graph

    AssetGraph.from_assets = classmethod(from_assets)  # type: ignore[assignment,method-assign]


_watch()
