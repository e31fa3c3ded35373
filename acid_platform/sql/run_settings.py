"""SET and RESET: settings of the warehouse, and those of Hive that nothing here reads.

What is SET is stored in the metastore and holds for the whole warehouse. What a setting of Hive
would change here decides: one that would change an answer is among those of `base.config`, and any
other is ignored, with a note when a session sets it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.base.config import REGISTRY, setting
from acid_platform.errors import UnsupportedStatement
from acid_platform.metastore.show_columns import Shown
from acid_platform.sql.answers import Done
from acid_platform.sql.commands import CommandRun, Commands

if TYPE_CHECKING:
    from acid_platform.sql.answers import Outcome

SETTINGS = Commands()
_KEY = r"(?P<key>[\w.-]*\w)"
_USED_HERE = ("acid.", "spark.")
"""Settings of what runs here begin so: an unknown one is misspelt, or would be lost."""


@SETTINGS("SET", rf"set(?: -v| (?:hiveconf ?: ?)?{_KEY}(?: ?=(?P<value>.*))?)?")
def set_value(run: CommandRun, key: str = "", value: str | None = None) -> Outcome:
    """Changes a setting of the whole warehouse; shows it without a value, all without a key."""
    if not key:
        return Shown.lines("set", [f"{name}={text}" for name, text in _settings(run).items()])
    known = _is_known(key)
    if value is None:
        shown = _settings(run).get(key, REGISTRY[key].default if known else None)
        return Shown.lines("set", [f"{key} is undefined" if shown is None else f"{key}={shown}"])
    if known:
        _store(run, key, value)
    ignored = not known and key not in run.session.settings
    run.session.settings[key] = value
    return Done("SET", f"OK, but {key} is unknown here and ignored" if ignored else "OK")


@SETTINGS("SET", r"set (?P<space>hivevar|system|env|metaconf) ?:.*")
def set_variable(_run: CommandRun, space: str) -> Outcome:
    raise UnsupportedStatement(
        f"SET {space}: is not supported, since no variable is replaced in SQL;"
        " write :day in the statement, and wh.sql(statement, {'day': …})"
    )


@SETTINGS("RESET", rf"reset(?: (?:-d )?{_KEY})?")
def reset(run: CommandRun, key: str = "") -> None:
    """Gives a setting its default value for the whole warehouse; without a key, all settings that
    this session has SET, the last one first."""
    for name in (key,) if key else tuple(reversed(run.session.settings)):
        if _is_known(name):
            _store(run, name, REGISTRY[name].default)
        run.session.settings.pop(name, None)


def _is_known(key: str) -> bool:
    """Raises SettingRefused for an unknown setting of what runs here."""
    if key.startswith(_USED_HERE):
        setting(key)
    return key in REGISTRY


def _settings(run: CommandRun) -> dict[str, str]:
    """All settings of the warehouse, then Hive's that this session has SET."""
    stored = run.metastore.settings()
    own = {name: text for name, text in run.session.settings.items() if name not in stored}
    return {**stored, **own}


def _store(run: CommandRun, key: str, value: str) -> None:
    """Raises SettingRefused."""
    run.metastore.set(key, value)
    if run.session.transaction is not None:
        run.session.transaction.learn_settings()
