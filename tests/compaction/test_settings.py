"""Each of Hive's settings is in one class of P9, and the code reads each honoured setting."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import acid_platform
from acid_platform.base.config import HONOURED, NO_EFFECT, REFUSED, setting

SOURCES = sorted(Path(acid_platform.__file__).parent.rglob("*.py"))

_NAMES = """
hive.txn.manager hive.support.concurrency hive.exec.dynamic.partition.mode hive.enforce.bucketing
hive.txn.timeout hive.txn.heartbeat.threadpool.size hive.timedout.txn.reaper.start
hive.timedout.txn.reaper.interval hive.txn.max.open.batch hive.max.open.txns
hive.count.open.txns.interval hive.txn.retryable.sqlex.regex hive.compactor.initiator.on
hive.compactor.worker.threads hive.compactor.worker.timeout hive.compactor.cleaner.run.interval
hive.compactor.check.interval hive.compactor.delta.num.threshold hive.compactor.delta.pct.threshold
hive.compactor.abortedtxn.threshold hive.compactor.max.num.delta hive.compactor.job.queue
hive.txn.opentxn.timeout hive.txn.use.minhistorylevel hive.txn.use.minhistorywriteid
hive.writeset.reaper.interval hive.metastore.housekeeping.threads.on hive.metastore.txn.store.impl
hive.txn.max.retrysnapshot.count hive.repl.txn.timeout hive.lock.manager hive.lock.numretries
hive.unlock.numretries hive.lock.sleep.between.retries
hive.txn.manager.dump.lock.state.on.acquire.timeout hive.txn.strict.locking.mode
hive.txn.ext.locking.enabled hive.txn.nonacid.read.locks hive.txn.read.locks
hive.locks.max.partitions hive.txn.xlock.iow hive.txn.xlock.write hive.txn.xlock.mergeinsert
hive.txn.xlock.ctas hive.txn.readonly.enabled hive.acid.lockless.reads.enabled
hive.acid.createtable.softdelete hive.acid.droppartition.usebase hive.acid.renamepartition.makecopy
hive.acid.truncate.usebase hive.txn.operational.properties hive.txn.stats.enabled
hive.txn.acid.dir.cache.duration hive.txn.write.acid.version.file hive.create.as.acid
hive.merge.cardinality.check hive.transactional.concatenate.noblock hive.compactor.cleaner.on
hive.compactor.request.queue hive.compactor.cleaner.threads.num hive.compactor.worker.sleep.time
hive.compactor.worker.max.sleep.time hive.compactor.worker.pool.timeout
hive.compactor.aborted.txn.time.threshold hive.compactor.clean.aborts.using.cleaner
hive.compactor.delayed.cleanup.enabled hive.compactor.cleaner.retention.time.seconds
hive.compactor.cleaner.retry.maxattempts hive.compactor.cleaner.retry.retention.time
hive.compactor.fetch.size hive.compactor.initiator.failed.compacts.threshold
hive.compactor.initiator.failed.retry.time hive.compactor.history.retention.succeeded
hive.compactor.history.retention.failed hive.compactor.history.retention.refused
hive.compactor.history.retention.did.not.initiate hive.compactor.history.retention.timeout
hive.compactor.history.reaper.interval hive.compactor.wait.timeout hive.compactor.run.as.user
hive.compactor.compact.insert.only hive.compactor.crud.query.based hive.compaction.merge.enabled
hive.compactor.gather.stats hive.mr.compactor.gather.stats
metastore.compactor.enable.stats.compression hive.compactor.initiator.tablecache.on
hive.compactor.cleaner.tablecache.on hive.compactor.connectionPool.maxPoolSize
hive.compactor.initiator.duration.update.interval hive.compactor.cleaner.duration.update.interval
hive.compactor.active.delta.dir.threshold hive.compactor.obsolete.delta.dir.threshold
hive.compactor.small.delta.dir.threshold hive.compactor.oldest.open.txn.threshold.warning
hive.compactor.oldest.open.txn.threshold.error
hive.compactor.oldest.uncleaned.aborted.txn.time.threshold.warning
hive.compactor.oldest.uncleaned.aborted.txn.time.threshold.error
hive.compactor.oldest.initiated.compaction.time.threshold.warning
hive.compactor.oldest.initiated.compaction.time.threshold.error
hive.compactor.oldest.uncleaned.compaction.time.threshold
hive.compactor.long.running.initiator.threshold.warning
hive.compactor.long.running.initiator.threshold.error
hive.compactor.failed.compaction.ratio.threshold
hive.compactor.completed.txn.components.record.threshold.warning
hive.compactor.completed.txn.components.record.threshold.error
hive.compactor.txn.to.writeid.record.threshold.warning
hive.compactor.txn.to.writeid.record.threshold.error
hive.compactor.tables.with.aborted.txn.threshold
hive.metastore.acidmetrics.table.aborted.txns.threshold hive.compactor.acid.metrics.logger.frequency
"""
SECTION_6 = frozenset(_NAMES.split())

ONE_VALUE = {"hive.txn.manager"}
"""Settings with a single allowed value: there is nothing to read."""


def test_P9_every_setting_of_hive_is_in_one_class() -> None:
    known = [entry.name for entry in (*HONOURED, *NO_EFFECT, *REFUSED)]
    assert len(known) == len(set(known))
    assert set(known) >= SECTION_6


def test_P9_what_is_not_honoured_says_why() -> None:
    assert all(len(entry.reason) > 15 for entry in (*NO_EFFECT, *REFUSED))


def read_names(tree: ast.Module) -> Iterator[str]:
    """Patterns of the texts in the code, without docstrings and without the declarations."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        declared = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Setting"
        if docstring or declared:
            skipped |= {id(part) for part in ast.walk(node)}
        elif isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"[\w.]+"
                for part in node.values
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            yield re.escape(node.value)


@pytest.fixture(scope="module")
def patterns() -> frozenset[str]:
    return frozenset(
        one
        for path in SOURCES
        for one in read_names(ast.parse(path.read_text()))
        if one.startswith(("hive", "acid"))
    )


@pytest.mark.parametrize("name", [entry.name for entry in HONOURED if entry.name not in ONE_VALUE])
def test_P9_an_honoured_setting_is_read_somewhere(name: str, patterns: frozenset[str]) -> None:
    assert any(re.fullmatch(pattern, name) for pattern in patterns), f"nobody reads {name}"


@pytest.mark.parametrize("name", sorted(ONE_VALUE))
def test_P9_a_setting_of_one_value_refuses_every_other(name: str) -> None:
    assert len(setting(name).choices) == 1
