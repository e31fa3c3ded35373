"""Calls about the client's session: settings, users, roles, functions, notifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acid_platform.errors import NoSuchTable
from acid_platform.gateway import shapes
from acid_platform.gateway.call_handler import CallHandler, always, always_struct
from acid_platform.metastore import operations as ops


class SessionCalls(CallHandler):
    """What clients ask besides. It grants no privileges: engines that check them themselves have to
    be told to allow all."""

    def get_config_value(self, name: str, default: str | None) -> str:
        """A setting; `metastore.x` is another name of `hive.x`. `default` if it is unknown."""
        settings = self._metastore.settings()
        other = f"hive.{name.removeprefix('metastore.')}"
        return settings.get(name) or settings.get(other) or default or ""

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

    flushCache = always()
    get_role_names = always(["admin", "public"])
    list_roles = always([])
    list_privileges = always([])

    # --- there are no functions, notifications and runtime statistics ---------------------------

    get_functions = always([])
    get_functions_req = always_struct("GetFunctionsResponse", function_names=[], functions=[])
    get_all_functions = always_struct("GetAllFunctionsResponse", functions=[])
    get_current_notificationEventId = always_struct("CurrentNotificationEventId", eventId=0)
    get_next_notification = always_struct("NotificationEventResponse", events=[])
    get_notification_events_count = always_struct("NotificationEventsCountResponse", eventsCount=0)
    fire_listener_event = always_struct("FireEventResponse", eventIds=[])
    """What an engine reports here, its commit says too."""
    get_runtime_stats = always([])
    add_runtime_stats = always()
