"""No two assets of a code location fill the same table (P57)."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from acid_platform import InvalidDefinition
from acid_platform.orchestration import (
    AcidIOManager,
    SparkResource,
    TableDeclaration,
    WarehouseResource,
    acid_asset,
)
from acid_platform.orchestration.components import ExternalAssetsComponent
from acid_platform.orchestration.metadata import STORAGE_KIND


def plain(*path: str, schema: str | None = None, manager: str = "io_manager") -> Any:
    """An asset of an IO manager."""
    return stored(path, schema, manager, list[dict[str, int]])


def stored(path: Sequence[str], schema: str | None, manager: str, kind: object) -> Any:
    metadata = {"schema": schema} if schema else {}

    def made() -> Any: ...

    made.__annotations__["return"] = kind
    return dg.asset(name=path[-1], key_prefix=path[:-1], metadata=metadata, io_manager_key=manager)(
        made
    )


def acid(table: str) -> Any:
    @acid_asset(table=TableDeclaration(table, "id int"))
    def made() -> None: ...

    return made


def external(*path: str, table: str = "", kind: str | None = STORAGE_KIND) -> dg.AssetSpec:
    metadata = {"dagster/table_name": table, "dagster/storage_kind": kind}
    return dg.AssetSpec(
        dg.AssetKey(path), metadata={name: text for name, text in metadata.items() if text}
    )


def by_component(table: str) -> Any:
    defs = ExternalAssetsComponent(tables=[table]).build_defs_from_state(None, None)  # type: ignore[arg-type]
    return next(iter(defs.assets or ()))


def definitions(*assets: Any) -> dg.Definitions:
    warehouse = WarehouseResource(path="var/x")
    return dg.Definitions(
        assets=assets,
        resources={
            "warehouse": warehouse,
            "spark": SparkResource(),
            "io_manager": AcidIOManager(warehouse=warehouse),
            "in_s": AcidIOManager(warehouse=warehouse, schema="s"),
            "elsewhere": AcidIOManager(warehouse=WarehouseResource(path="var/y")),
            "named_by_env": AcidIOManager(warehouse=warehouse, schema=dg.EnvVar("P57_SCHEMA")),
            "named_by_env_later": AcidIOManager(warehouse=warehouse, schema=dg.EnvVar("P57_NONE")),
            "at_launch": AcidIOManager.configure_at_launch(),
            "path_of_env": AcidIOManager(warehouse=WarehouseResource(path=dg.EnvVar("P57_PATH"))),
            "path_of_link": AcidIOManager(warehouse=WarehouseResource(path=dg.EnvVar("P57_LINK"))),
            "path_written_otherwise": AcidIOManager(
                warehouse=WarehouseResource(path="./var/y/../x")
            ),
            "other_system": dg.mem_io_manager,
        },
    )


Pair = tuple[Any, Any]
SAME: dict[str, Callable[[], Pair]] = {
    "letter case": lambda: (plain("s", "orders"), plain("s", "Orders")),
    "schema of one": lambda: (plain("s", "orders"), plain("orders", schema="s")),
    "schema of both": lambda: (
        plain("a", "orders", schema="s"),
        plain("b", "orders", schema="S"),
    ),
    "schema of the manager": lambda: (plain("s", "orders"), plain("x", "orders", manager="in_s")),
    "no database": lambda: (plain("orders"), plain("default", "orders")),
    "an asset in a transaction": lambda: (acid("s.orders"), plain("s", "Orders")),
    "a schema beside it": lambda: (acid("s.orders"), plain("orders", schema="s")),
    "an external asset": lambda: (
        plain("orders", schema="s"),
        external("s", "orders", table="s.orders"),
    ),
    "one of a component": lambda: (plain("orders", schema="s"), by_component("s.orders")),
    "a schema of the environment": lambda: (
        plain("orders", manager="named_by_env"),
        plain("s", "orders"),
    ),
    **{
        f"a warehouse: {manager}": lambda manager=manager: (  # type: ignore[misc]
            plain("s", "orders"),
            plain("s", "Orders", manager=manager),
        )
        for manager in ("path_of_env", "path_of_link", "path_written_otherwise")
    },
}
APART: dict[str, Callable[[], Pair]] = {
    "other names": lambda: (plain("s", "orders"), plain("s", "items")),
    "other databases": lambda: (plain("s", "orders"), plain("s", "orders_", schema="t")),
    "another warehouse": lambda: (
        plain("s", "orders"),
        plain("s", "Orders", manager="elsewhere"),
    ),
    "another system": lambda: (plain("s", "orders"), plain("s", "Orders", manager="other_system")),
    **{
        f"a schema that is no default: {manager}": lambda manager=manager: (  # type: ignore[misc]
            plain("orders", manager=manager),
            plain("default", "orders"),
        )
        for manager in ("named_by_env", "named_by_env_later", "at_launch")
    },
    "one that writes by itself": lambda: (
        plain("s", "orders"),
        stored(["s", "Orders"], None, "io_manager", None),
    ),
    "a key without a table": lambda: (plain("s", "orders"), plain("a", "s", "orders")),
    "a source of that name": lambda: (
        plain("s", "orders"),
        external("postgres", "orders", table="s.orders", kind="postgres"),
    ),
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(os.path.abspath("var/x"))
    monkeypatch.setenv("P57_LINK", str(tmp_path / "link"))
    monkeypatch.setenv("P57_SCHEMA", "s")
    monkeypatch.setenv("P57_PATH", os.path.abspath("var/x"))


@pytest.mark.parametrize("case", SAME)
def test_P57_two_assets_of_one_table_are_refused_when_they_are_loaded(case: str) -> None:
    with pytest.raises(InvalidDefinition, match=r"(s|default)\.orders, and would replace"):
        definitions(*SAME[case]()).get_repository_def()


@pytest.mark.parametrize("case", APART)
def test_P57_assets_of_other_tables_are_loaded(case: str) -> None:
    dg.Definitions.validate_loadable(definitions(*APART[case]()))
