"""Calls about the client's session: settings, users, roles, functions, notifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acid_platform.errors import NoSuchTable
from acid_platform.gateway import shapes
from acid_platform.gateway.protocol import load
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.tables import GetIdentity


class SessionCalls:
    """The part of the gateway that answers what clients ask besides. It grants no privileges:
    engines that check them themselves have to be told to allow all."""

    _metastore: Metastore

    def get_config_value(self, name: str, default: str | None) -> str:
        """A setting; `metastore.x` is another name of `hive.x`. `default` if it is unknown."""
        known = self._metastore.settings()
        other = f"hive.{name.removeprefix('metastore.')}"
        return known.get(name) or known.get(other) or default or ""

    def getMetaConf(self, name: str) -> str:
        return self.get_config_value(name, "")

    def set_ugi(self, user: str, _groups: Sequence[str]) -> list[str]:
        return [user]

    def flushCache(self) -> None:
        return None

    def get_metastore_db_uuid(self) -> str:
        return self._metastore.call(GetIdentity()).id

    def get_role_names(self) -> list[str]:
        return ["admin", "public"]

    def list_roles(self, _principal: str, _kind: int) -> list[Any]:
        return []

    def get_privilege_set(self, _thing: Any, _user: str, _groups: Sequence[str]) -> Any:
        return shapes.nobody()

    def list_privileges(self, _principal: str, _kind: int, _thing: Any) -> list[Any]:
        return []

    def get_functions(self, _database: str, _pattern: str) -> list[str]:
        return []

    def get_function(self, database: str, name: str) -> Any:
        raise NoSuchTable(f"there is no function {database}.{name}")

    def get_all_functions(self) -> Any:
        return load().GetAllFunctionsResponse(functions=[])

    def get_current_notificationEventId(self) -> Any:
        """There are no notifications: the id never changes."""
        return load().CurrentNotificationEventId(eventId=0)

    def get_next_notification(self, _request: Any) -> Any:
        return load().NotificationEventResponse(events=[])

    def get_notification_events_count(self, _request: Any) -> Any:
        return load().NotificationEventsCountResponse(eventsCount=0)

    def fire_listener_event(self, _request: Any) -> Any:
        """What an engine reports here, its commit says too."""
        return load().FireEventResponse(eventIds=[])

    def get_runtime_stats(self, _request: Any) -> list[Any]:
        return []

    def add_runtime_stats(self, _statistics: Any) -> None:
        return None
