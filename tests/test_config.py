"""The settings registry (P7, P9, C22); SET of others: tests/sql/test_settings_of_a_session."""

from __future__ import annotations

import pytest

from acid_platform import SettingRefused
from acid_platform.base.config import (
    HONOURED,
    REFUSED,
    REGISTRY,
    SettingKind,
    Settings,
    Treatment,
    setting,
)

PUBLISHED = [
    # The rows marked S, in order, with the defaults of P9.
    ("hive.txn.manager", "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager"),
    ("hive.txn.timeout", 300_000),
    ("hive.txn.heartbeat.threadpool.size", 5),
    ("hive.timedout.txn.reaper.start", 100_000),
    ("hive.timedout.txn.reaper.interval", 180_000),
    ("hive.txn.max.open.batch", 1000),
    ("hive.max.open.txns", 100_000),
    ("hive.count.open.txns.interval", 1000),
    ("hive.txn.retryable.sqlex.regex", ""),
    ("hive.compactor.initiator.on", True),
    ("hive.compactor.worker.threads", 1),
    ("hive.compactor.worker.timeout", 86_400_000),
    ("hive.compactor.cleaner.run.interval", 5000),
    ("hive.compactor.check.interval", 300_000),
    ("hive.compactor.delta.num.threshold", 10),
    ("hive.compactor.delta.pct.threshold", 0.1),
    ("hive.compactor.abortedtxn.threshold", 1000),
    ("hive.compactor.max.num.delta", 500),
    ("hive.compactor.job.queue", ""),
]


@pytest.mark.parametrize(("name", "default"), PUBLISHED)
def test_P9_published_settings_are_honoured(name: str, default: object) -> None:
    assert setting(name).treatment is Treatment.HONOURED
    assert Settings.of().value(name) == default


def test_P9_every_setting_is_in_one_class() -> None:
    every = [setting.name for setting in (*HONOURED, *REFUSED)]
    assert len(every) == len(set(every)) == len(REGISTRY)
    assert {setting.treatment for setting in HONOURED} == {Treatment.HONOURED}
    assert {setting.treatment for setting in REFUSED} == {Treatment.REFUSED}
    assert all(setting.reason for setting in REFUSED)


def test_P9_every_default_is_allowed() -> None:
    for name in REGISTRY:
        Settings.of({name: setting(name).default})


def test_a_setting_of_an_earlier_release_is_left_out_and_one_of_another_case_is_equal() -> None:
    stored = Settings({}).with_stored("hive.repl.txn.timeout", "11d")
    assert stored.with_stored("hive.default.fileformat", "ORC").overrides == {
        "hive.default.fileformat": "ORC"
    }
    assert Settings.of({"hive.default.fileformat": "ORC"})


TIMES = [
    ("300s", 300_000),
    ("300", 300_000),
    ("5min", 300_000),
    ("5 m", 300_000),
    ("2000ms", 2000),
    ("0.5h", 1_800_000),
    ("1d", 86_400_000),
    ("7 days", 604_800_000),
]


@pytest.mark.parametrize(("text", "milliseconds"), TIMES)
def test_times_are_milliseconds(text: str, milliseconds: int) -> None:
    assert Settings.of({"hive.txn.timeout": text}).integer("hive.txn.timeout") == milliseconds


def test_a_bare_number_is_in_the_settings_own_unit() -> None:
    assert (
        Settings.of({"hive.compactor.cleaner.run.interval": "200"}).integer(
            "hive.compactor.cleaner.run.interval"
        )
        == 200
    )
    assert setting("hive.compactor.aborted.txn.time.threshold").parse("-1") == -3_600_000


WRONG = [
    ("hive.txn.timeout", "0", "from 1 to 604800 s"),
    ("hive.txn.timeout", "soon", "a time"),
    ("hive.txn.timeout", "5 weeks", "a time"),
    ("hive.compactor.fetch.size", "99", "from 100 to 5000"),
    ("hive.compactor.fetch.size", "5001", "from 100 to 5000"),
    ("hive.compactor.fetch.size", "1e3", "a whole number"),
    ("hive.compactor.delta.pct.threshold", "ten", "a number"),
    ("hive.compactor.initiator.on", "yes", "true or false"),
    ("hive.txn.manager", "org.apache.hadoop.hive.ql.lockmgr.DummyTxnManager", "DbTxnManager"),
    ("hive.support.concurrency", "false", "only 'true': transactions need it"),
    ("hive.exec.dynamic.partition.mode", "strict", "only 'nonstrict'"),
    ("hive.acid.createtable.softdelete", "true", "soft deletes are not built"),
    ("hive.exec.dynamic.partition", "false", "only 'true': rows may always"),
    ("hive.exec.default.partition.name", "x", "only '__HIVE_DEFAULT_PARTITION__'"),
    ("hive.support.quoted.identifiers", "none", "is a name, not a pattern"),
    ("hive.local.time.zone", "Europe/Berlin", "statements run in UTC"),
    ("acid.cleaner.watermark", "partition", "'table', 'global'"),
    ("hive.txn.retryable.sqlex.regex", "a, (", "regular expressions"),
    ("acid.outcome.retention", "1h", "from 24"),
]


@pytest.mark.parametrize(("name", "text", "allowed"), WRONG)
def test_P9_a_refusal_names_setting_value_and_range(name: str, text: str, allowed: str) -> None:
    with pytest.raises(SettingRefused) as refused:
        Settings.of({name: text})
    for part in (name, repr(text), allowed):
        assert part in str(refused.value)


def test_P7_the_heartbeat_stays_below_the_timeout() -> None:
    assert Settings.of().heartbeat_interval == 150_000
    assert Settings.of({"acid.heartbeat.interval": "299s"}).heartbeat_interval == 299_000
    later = {"acid.heartbeat.interval": "350s", "hive.txn.timeout": "400s"}
    assert Settings.of(later).heartbeat_interval == 350_000
    for both in (
        {"acid.heartbeat.interval": "300s"},
        {"acid.heartbeat.interval": "60s", "hive.txn.timeout": "60s"},
    ):
        with pytest.raises(SettingRefused, match="must be below"):
            Settings.of(both)


def test_P9_retryable_patterns() -> None:
    chosen = Settings.of({"hive.txn.retryable.sqlex.regex": "No space, IO Error.*busy"})
    assert chosen.transient("IO Error: disk is busy") and chosen.transient("No space left")
    assert not chosen.transient("syntax") and not Settings.of().transient("No space left")


def test_lock_settings() -> None:
    chosen = Settings.of({"hive.txn.xlock.write": "TRUE"}).lock_settings
    assert chosen.xlock_write and chosen.xlock_iow and not chosen.xlock_mergeinsert


def test_kinds_know_their_text() -> None:
    assert {setting.kind for setting in REGISTRY.values()} == set(SettingKind)
