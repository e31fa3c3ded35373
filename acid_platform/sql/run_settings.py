"""SET, RESET and SHOW CONF: settings of the warehouse, and Hive's that mean nothing here.

What is SET is stored in the metastore and holds for the whole warehouse. A setting of Hive without
meaning is only remembered by the session, which answers that nothing follows from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.base import hive_settings
from acid_platform.base.config import REGISTRY, Treatment
from acid_platform.errors import UnsupportedStatement
from acid_platform.metastore.shown import Shown
from acid_platform.sql.answers import Done
from acid_platform.sql.commands import Commands

if TYPE_CHECKING:
    from acid_platform.sql.answers import Outcome
    from acid_platform.sql.catalog import Catalog
    from acid_platform.sql.sql_session import SqlSession

SETTINGS = Commands()
_KEY = r"(?P<key>[\w.-]*\w)"
_CONF = ("default", "type", "desc")


@SETTINGS("SET", rf"set(?: -v| (?:hiveconf ?: ?)?{_KEY}(?: ?=(?P<value>.*))?)?")
def set_value(
    session: SqlSession, _catalog: Catalog, key: str = "", value: str | None = None
) -> Outcome:
    """Changes a setting of the whole warehouse; shows it without a value, all without a key."""
    if not key:
        return Shown.lines("set", [f"{name}={text}" for name, text in _settings(session).items()])
    if value is None:
        return Shown.lines("set", [_shown(session, key)])
    if key in REGISTRY:
        _store(session, key, value)
        why = REGISTRY[key].reason
    else:
        why = hive_settings.without_effect(key, value)
    session.settings[key] = value
    return Done("SET", f"OK, but without effect: {why}" if why else "OK")


@SETTINGS("SET", r"set (?P<space>hivevar|system|env|metaconf) ?:.*")
def set_variable(_session: SqlSession, _catalog: Catalog, space: str) -> Outcome:
    raise UnsupportedStatement(
        f"SET {space}: is not supported, since no variable is replaced in SQL;"
        " write :day in the statement, and wh.sql(statement, {'day': …})"
    )


@SETTINGS("RESET", rf"reset(?: (?:-d )?{_KEY})?")
def reset(session: SqlSession, _catalog: Catalog, key: str = "") -> None:
    """Gives a setting its default value for the whole warehouse; without a key, all settings that
    this session has SET, the last one first."""
    for name in (key,) if key else tuple(reversed(session.settings)):
        if name in REGISTRY:
            _store(session, name, REGISTRY[name].default)
        else:
            hive_settings.without_effect(name)  # an unknown name is an error
        session.settings.pop(name, None)


@SETTINGS("SHOW CONF", r"show conf '(?P<key>[^']+)'")
def show_conf(_session: SqlSession, _catalog: Catalog, key: str) -> Shown:
    """The default of a setting, its type and what it allows, in Hive's columns."""
    described = REGISTRY.get(key) or hive_settings.ONE_VALUE.get(key)
    if described is None:
        row = ("", "", f"accepted without effect: {hive_settings.without_effect(key)}")
    else:
        about = described.reason if described.treatment is Treatment.NO_EFFECT else ""
        text = f"{described.treatment.value}: {about or f'allowed is {described.allowed}'}"
        row = (described.default, described.kind.name.lower(), text)
    return Shown(_CONF, (dict(zip(_CONF, row, strict=True)),))


def _settings(session: SqlSession) -> dict[str, str]:
    """All settings of the warehouse, then Hive's that this session has SET."""
    stored = session.warehouse.metastore.settings()
    own = {name: text for name, text in session.settings.items() if name not in stored}
    return {**stored, **own}


def _shown(session: SqlSession, key: str) -> str:
    """`name=value`, or as Hive says it that a setting has no value. Raises SettingRefused."""
    settings = _settings(session)
    if key in settings:
        return f"{key}={settings[key]}"
    hive_settings.without_effect(key)  # an unknown name is an error
    only = hive_settings.ONE_VALUE.get(key)
    return f"{key} is undefined" if only is None else f"{key}={only.default}"


def _store(session: SqlSession, key: str, value: str) -> None:
    """Raises SettingRefused."""
    session.warehouse.metastore.set(key, value)
    if session.transaction is not None:
        session.transaction.learn_settings()
