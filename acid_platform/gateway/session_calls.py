"""Calls about settings, users and rights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acid_platform.errors import NoSuchTable
from acid_platform.gateway import shapes
from acid_platform.gateway.call_handler import CallHandler
from acid_platform.metastore import operations as ops


class SessionCalls(CallHandler):
    """What clients ask besides. It grants no privileges: engines that check them themselves have to
    be told to allow all."""

    def get_config_value(self, name: str, default: str | None) -> str:
        """One of Hive's settings; `metastore.x` is another name of `hive.x`. `default` for all
        others: they may hold places and credentials."""
        settings = self._metastore.settings()
        hives = name if name.startswith("hive.") else f"hive.{name.removeprefix('metastore.')}"
        return settings.get(hives) or default or ""

    def getMetaConf(self, name: str) -> str:
        return self.get_config_value(name, "")

    def set_ugi(self, user: str, _groups: Sequence[str]) -> list[str]:
        return [user]

    def get_metastore_db_uuid(self) -> str:
        return self._metastore.call(ops.GetIdentity()).id

    def get_privilege_set(self, _thing: Any, _user: str, _groups: Sequence[str]) -> Any:
        return shapes.nobody()

    def get_function(self, database: str, name: str) -> Any:
        raise NoSuchTable(f"there is no function {database}.{name}")
