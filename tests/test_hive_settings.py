"""Settings of Hive that mean nothing here, and those that would change what statements do."""

from __future__ import annotations

import pytest

from acid_platform import SettingRefused
from acid_platform.base.config import REGISTRY
from acid_platform.sql.run_settings import FAMILIES, ONE_VALUE, without_effect


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("hive.exec.dynamic.partition", "TRUE", "rows may always choose"),
        ("hive.default.fileformat", "ORC", "STORED AS"),
        ("hive.exec.parallel", "true", "nothing here reads it"),
        ("hive.exec.orc.base.delta.ratio", "8", "each write decides on its files"),
        ("hive.exec.max.dynamic.partitions.pernode", "1000", "nothing here reads it"),
        ("mapreduce.job.reduces", "10", "no such job"),
        ("mapred.reduce.tasks", "10", "no such job"),
        ("tez.queue.name", "etl", "no such job"),
        ("hive.tez.container.size", "1024", "no such job"),
        ("hive.execution.engine", "tez", "engine="),
        ("hive.vectorized.execution.enabled", "false", "plans the query"),
        ("hive.cbo.enable", "true", "plans the query"),
        ("hive.optimize.ppd.storage", "true", "plans the query"),
        ("hive.stats.autogather", "false", "files of each commit"),
        ("hive.mapred.mode", "strict", "not checked"),
    ],
)
def test_a_setting_without_meaning_says_why(name: str, value: str, reason: str) -> None:
    assert reason in without_effect(name, value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hive.exec.dynamic.partition", "false", "allowed is only 'true': rows may always"),
        ("hive.exec.default.partition.name", "x", "only '__HIVE_DEFAULT_PARTITION__'"),
        ("hive.support.quoted.identifiers", "none", "is a name, not a pattern"),
        ("hive.exec.post.hooks", "org.example.Hook", "hooks of Hive are not run"),
        ("hive.local.time.zone", "Europe/Berlin", "statements run in UTC"),
        ("hive.exec.dynamic.partiton", "true", "did you mean hive.exec.dynamic.partition?"),
        ("hive.exec.paralel", "true", "did you mean hive.exec.parallel?"),
        ("mapreduce.job.redcues", "1", "did you mean mapreduce.job.reduces?"),
        ("hive.vectorised.execution.enabled", "1", "did you mean hive.vectorized.execution"),
        ("hive.txn.timeot", "1", "did you mean hive.txn.timeout?"),
        ("hive.nope", "1", "there is no setting 'hive.nope'; SET lists"),
        ("hive.security.authorization.enabled", "true", "there is no setting"),
        ("hive.metastore.uris", "thrift://host:9083", "there is no setting"),
        ("spark.sql.shuffle.partitions", "1", "there is no setting"),
    ],
)
def test_what_would_change_results_or_is_misspelt_is_refused(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(SettingRefused) as refused:
        without_effect(name, value)
    assert name in str(refused.value) and message in str(refused.value)


def test_a_setting_is_the_platforms_or_hives() -> None:
    assert not ONE_VALUE.keys() & REGISTRY.keys()
    assert all(FAMILIES.values())
    for name, one in ONE_VALUE.items():
        assert without_effect(name, one.default) == one.reason
