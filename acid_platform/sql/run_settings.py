"""SET, RESET and SHOW CONF: settings of the warehouse, and Hive's that mean nothing here.

What is SET is stored in the metastore and holds for the whole warehouse. A setting of Hive without
meaning is only remembered by the session, which answers that nothing follows from it.

Hive has about a thousand settings, most of them for engines that do not run here. So whole families
are accepted with a note, and the members that would change what a statement does only with the
value that it has here anyway. The platform's own settings are in `base.config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.base.config import REGISTRY, Setting, SettingKind, Treatment
from acid_platform.base.similar_names import nearest_name
from acid_platform.errors import SettingRefused, UnsupportedStatement
from acid_platform.metastore.show_columns import Shown
from acid_platform.sql.answers import Done
from acid_platform.sql.commands import CommandRun, Commands

if TYPE_CHECKING:
    from acid_platform.sql.answers import Outcome


_JOBS = "no such job runs here"
_PLANS = "Spark or DuckDB plans the query"
_FILES = "each write decides on its files; the table property orc.compress chooses their codec"
_STATISTICS = "statistics come from the files of each commit"
_CHECKS = "queries are not checked for it"

FAMILIES: dict[str, str] = {
    **dict.fromkeys(("mapred.", "mapreduce.", "tez.", "yarn.", "hive.mapred."), _JOBS),
    **dict.fromkeys(("hive.llap.", "hive.spark.", "hive.tez.", "hive.prewarm."), _JOBS),
    "hive.execution.": "the engine is chosen by engine= or ACID_ENGINE",
    "hive.exec.": "nothing here reads it",
    "hive.exec.compress.": _FILES,
    "hive.exec.orc.": _FILES,
    "hive.merge.": _FILES,
    "hive.stats.": _STATISTICS,
    "hive.compute.query.": _STATISTICS,
    "hive.mapred.mode": _CHECKS,
    "hive.strict.checks.": _CHECKS,
    "hive.variable.": "no variable is replaced in SQL; give parameters instead",
    **dict.fromkeys(
        (
            *("hive.auto.", "hive.cbo.", "hive.compute.splits.", "hive.enforce.", "hive.explain."),
            *(
                "hive.fetch.",
                "hive.groupby.",
                "hive.hashtable.",
                "hive.ignore.mapjoin.",
                "hive.index.",
            ),
            *("hive.input.", "hive.join.", "hive.limit.", "hive.map.", "hive.mapjoin."),
            *("hive.materializedview.", "hive.multigroupby.", "hive.new.job.", "hive.optimize."),
            *("hive.orc.", "hive.ppd.", "hive.skewjoin.", "hive.smbjoin."),
            *("hive.transpose.aggr.", "hive.vectorized."),
        ),
        _PLANS,
    ),
    **dict.fromkeys(
        ("hive.cli.", "hive.log.", "hive.query.", "hive.querylog.", "hive.session."),
        "nothing here reads it",
    ),
}
"""The beginning of a name, and why nothing follows from such a setting; the longest counts."""

_TRUE, _FALSE = (SettingKind.BOOL, "true"), (SettingKind.BOOL, "false")
_NONE = (SettingKind.TEXT, "")
_ORC = (SettingKind.TEXT, "orc")
_HOOKS = "hooks of Hive are not run"
_FORMAT = "CREATE TABLE … STORED AS chooses another format"
_POSITION = "a number in GROUP BY and ORDER BY is a position"

ONE_VALUE: dict[str, Setting] = {
    name: Setting(name, kind, value, reason=reason, treatment=Treatment.REFUSED)
    for name, (kind, value), reason in (
        ("hive.cli.errors.ignore", _FALSE, "the first error ends a script"),
        ("hive.default.fileformat", _ORC, _FORMAT),
        ("hive.default.fileformat.managed", _ORC, _FORMAT),
        ("hive.error.on.empty.partition", _FALSE, "an INSERT may add no rows"),
        (
            "hive.exec.default.partition.name",
            (SettingKind.TEXT, "__HIVE_DEFAULT_PARTITION__"),
            "files know the partition of NULL by this name",
        ),
        ("hive.exec.driver.run.hooks", _NONE, _HOOKS),
        ("hive.exec.drop.ignorenonexistent", _FALSE, "write DROP … IF EXISTS"),
        ("hive.exec.dynamic.partition", _TRUE, "rows may always choose their partitions"),
        ("hive.exec.failure.hooks", _NONE, _HOOKS),
        ("hive.exec.orc.skip.corrupt.data", _FALSE, "damaged data is always an error"),
        ("hive.exec.post.hooks", _NONE, _HOOKS),
        ("hive.exec.pre.hooks", _NONE, _HOOKS),
        ("hive.exec.query.redactor.hooks", _NONE, _HOOKS),
        ("hive.exec.schema.evolution", _TRUE, "older files are read by the present columns"),
        ("hive.groupby.orderby.position.alias", _TRUE, _POSITION),
        ("hive.groupby.position.alias", _TRUE, _POSITION),
        ("hive.int.timestamp.conversion.in.seconds", _TRUE, "a number is a time in seconds"),
        (
            "hive.local.time.zone",
            (SettingKind.TEXT, "UTC"),
            "statements run in UTC; write from_utc_timestamp(…) for another zone",
        ),
        ("hive.orderby.position.alias", _TRUE, _POSITION),
        ("hive.query.lifetime.hooks", _NONE, _HOOKS),
        ("hive.query.timeout.seconds", (SettingKind.TEXT, "0"), "a statement has no time limit"),
        ("hive.resultset.use.unique.column.names", _FALSE, "a column is called id, not t.id"),
        (
            "hive.support.quoted.identifiers",
            (SettingKind.TEXT, "column"),
            "a text in backticks is a name, not a pattern",
        ),
        ("hive.typecheck.on.insert", _TRUE, "a value is stored unchanged or not at all"),
    )
}
"""Settings that would change what statements do; they are accepted with this value."""

_OFTEN_SET = """
hive.auto.convert.join hive.auto.convert.join.noconditionaltask hive.cbo.enable
    hive.auto.convert.join.noconditionaltask.size hive.auto.convert.sortmerge.join
    hive.compute.query.using.stats hive.cli.print.header hive.exec.compress.intermediate
    hive.exec.compress.output hive.exec.max.created.files hive.exec.max.dynamic.partitions
    hive.exec.max.dynamic.partitions.pernode hive.exec.mode.local.auto hive.exec.parallel
    hive.exec.parallel.thread.number hive.exec.reducers.bytes.per.reducer hive.exec.reducers.max
    hive.exec.scratchdir hive.exec.stagingdir hive.execution.engine hive.fetch.task.conversion
    hive.groupby.skewindata hive.map.aggr hive.mapjoin.smalltable.filesize hive.mapred.mode
    hive.merge.mapfiles hive.merge.mapredfiles hive.merge.size.per.task hive.merge.tezfiles
    hive.merge.smallfiles.avgsize hive.optimize.bucketmapjoin hive.optimize.index.filter
    hive.optimize.ppd hive.optimize.skewjoin hive.optimize.sort.dynamic.partition
    hive.stats.autogather hive.stats.column.autogather hive.stats.fetch.column.stats
    hive.stats.fetch.partition.stats hive.strict.checks.cartesian.product
    hive.tez.auto.reducer.parallelism hive.tez.container.size hive.tez.java.opts
    hive.vectorized.execution.enabled hive.vectorized.execution.reduce.enabled
    mapred.job.name mapred.job.queue.name mapred.reduce.tasks mapreduce.job.name
    mapreduce.job.queuename mapreduce.job.reduces mapreduce.map.memory.mb
    mapreduce.reduce.memory.mb tez.queue.name
"""
_OFTEN = frozenset(_OFTEN_SET.split())
"""Members of the families that scripts set often: a name that is hardly another is misspelt."""
_MISSPELT, _SIMILAR = 0.93, 0.75


def without_effect(name: str, value: str | None = None) -> str:
    """Why nothing follows from a setting of Hive that is not in `config.REGISTRY`, or from `value`.

    Raises SettingRefused for a value that would change what statements do, and for a name that is
    unknown or misspelt, with the one that may be meant.
    """
    only = ONE_VALUE.get(name)
    if only is not None:
        if value is not None and value.strip().lower() != only.default.lower():
            raise SettingRefused(f"{name}={value!r} is refused; allowed is {only.allowed}")
        return only.reason
    family = max(filter(name.startswith, FAMILIES), key=len, default=None)
    if name in _OFTEN and family is not None:
        return FAMILIES[family]
    names = sorted({*REGISTRY, *ONE_VALUE, *_OFTEN})
    similarity = _SIMILAR if family is None else _MISSPELT
    nearest = nearest_name(name, names, similarity)
    if family is not None and nearest is None:
        return FAMILIES[family]
    advice = f"did you mean {nearest}?" if nearest else "SET lists those of the platform"
    raise SettingRefused(f"there is no setting {name!r}; {advice}")


SETTINGS = Commands()
_KEY = r"(?P<key>[\w.-]*\w)"
_CONF = ("default", "type", "desc")


@SETTINGS("SET", rf"set(?: -v| (?:hiveconf ?: ?)?{_KEY}(?: ?=(?P<value>.*))?)?")
def set_value(run: CommandRun, key: str = "", value: str | None = None) -> Outcome:
    """Changes a setting of the whole warehouse; shows it without a value, all without a key."""
    if not key:
        return Shown.lines("set", [f"{name}={text}" for name, text in _settings(run).items()])
    if value is None:
        return Shown.lines("set", [_shown(run, key)])
    if key in REGISTRY:
        _store(run, key, value)
        why = REGISTRY[key].reason
    else:
        why = without_effect(key, value)
    run.session.settings[key] = value
    return Done("SET", f"OK, but without effect: {why}" if why else "OK")


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
        if name in REGISTRY:
            _store(run, name, REGISTRY[name].default)
        else:
            without_effect(name)  # an unknown name is an error
        run.session.settings.pop(name, None)


@SETTINGS("SHOW CONF", r"show conf '(?P<key>[^']+)'")
def show_conf(_run: CommandRun, key: str) -> Shown:
    """The default of a setting, its type and what it allows, in Hive's columns."""
    described = REGISTRY.get(key) or ONE_VALUE.get(key)
    if described is None:
        row = ("", "", f"accepted without effect: {without_effect(key)}")
    else:
        about = described.reason if described.treatment is Treatment.NO_EFFECT else ""
        text = f"{described.treatment.value}: {about or f'allowed is {described.allowed}'}"
        row = (described.default, described.kind.name.lower(), text)
    return Shown(_CONF, (dict(zip(_CONF, row, strict=True)),))


def _settings(run: CommandRun) -> dict[str, str]:
    """All settings of the warehouse, then Hive's that this session has SET."""
    stored = run.metastore.settings()
    own = {name: text for name, text in run.session.settings.items() if name not in stored}
    return {**stored, **own}


def _shown(run: CommandRun, key: str) -> str:
    """`name=value`, or as Hive says it that a setting has no value. Raises SettingRefused."""
    settings = _settings(run)
    if key in settings:
        return f"{key}={settings[key]}"
    without_effect(key)  # an unknown name is an error
    only = ONE_VALUE.get(key)
    return f"{key} is undefined" if only is None else f"{key}={only.default}"


def _store(run: CommandRun, key: str, value: str) -> None:
    """Raises SettingRefused."""
    run.metastore.set(key, value)
    if run.session.transaction is not None:
        run.session.transaction.learn_settings()
