"""Running statements about databases."""

from __future__ import annotations

from collections.abc import Mapping

from acid_platform.metastore.operations.tables import AlterDatabase, DropView, RemoveDatabase
from acid_platform.metastore.records import OwnerKind
from acid_platform.sql.commands import LABEL, ONE, TEXT, CommandRun, Commands

DATABASES = Commands(alone=True)


@DATABASES(
    "CREATE DATABASE",
    rf"create (?:database|schema) (?P<if_not_exists>if not exists )?(?P<database>{ONE})"
    rf"(?: comment (?P<comment>{TEXT}))?(?: with dbproperties ?\((?P<properties>.+)\))?",
)
def create_database(
    run: CommandRun,
    database: str,
    if_not_exists: bool = False,
    comment: str = "",
    properties: Mapping[str, str] | None = None,
) -> None:
    run.metastore.create_database(database, if_not_exists, comment, properties)


@DATABASES(
    "ALTER DATABASE SET DBPROPERTIES",
    rf"alter (?:database|schema) (?P<database>{ONE})"
    r" set dbproperties ?\((?P<properties>.+)\)",
)
def set_database_properties(run: CommandRun, database: str, properties: Mapping[str, str]) -> None:
    """The other properties stay, as in Hive."""
    run.catalog.require_database(database)
    run.metastore.call(AlterDatabase(database, properties=dict(properties)))


@DATABASES(
    "ALTER DATABASE SET OWNER",
    rf"alter (?:database|schema) (?P<database>{ONE})"
    rf" set owner (?P<owner_kind>user|role) (?P<owner>{LABEL})",
)
def set_database_owner(run: CommandRun, database: str, owner_kind: OwnerKind, owner: str) -> None:
    run.catalog.require_database(database)
    change = AlterDatabase(database, owner=owner, owner_kind=owner_kind)
    run.metastore.call(change)


@DATABASES(
    "DROP DATABASE",
    rf"drop (?:database|schema) (?P<if_exists>if exists )?(?P<database>{ONE})"
    r"(?: (?:restrict|(?P<cascade>cascade)))?",
)
def drop_database(
    run: CommandRun,
    database: str,
    if_exists: bool = False,
    cascade: bool = False,
) -> None:
    warehouse, metastore = run.warehouse, run.metastore
    if if_exists and database not in metastore.databases():
        return
    run.catalog.require_database(database)
    if cascade and database != "default":
        inside = f"{database}."
        for view in (*run.catalog.views, *run.catalog.externals):
            if view.startswith(inside):
                metastore.call(DropView(view))
        for table in warehouse.tables():
            if table.startswith(inside):
                metastore.drop(table)
    metastore.call(RemoveDatabase(database))
