"""The pace of services without an orchestrator."""

from __future__ import annotations

import threading

import pytest

from acid_platform import MetastoreUnavailable, SettingRefused, Terminal, Transient
from acid_platform.base.config import Settings
from acid_platform.cli.runner import CyclePace, ServiceName, pace_of, run_until


@pytest.mark.parametrize(
    ("service", "settings", "pace"),
    [
        (ServiceName.INITIATOR, {}, CyclePace(300_000, 300_000)),
        (ServiceName.CLEANER, {"hive.compactor.cleaner.run.interval": "7s"}, CyclePace(7000, 7000)),
        (ServiceName.WORKER, {}, CyclePace(10_800, 320_000, True, 1)),
        (
            ServiceName.WORKER,
            {"hive.compactor.worker.threads": "3"},
            CyclePace(10_800, 320_000, True, 3),
        ),
    ],
)
def test_P9_the_pace_follows_the_settings(
    service: ServiceName, settings: dict[str, str], pace: CyclePace
) -> None:
    assert pace_of(service, Settings.of(settings)) == pace


@pytest.mark.parametrize(
    ("service", "name", "value"),
    [
        (ServiceName.INITIATOR, "hive.compactor.initiator.on", "false"),
        (ServiceName.CLEANER, "hive.compactor.cleaner.on", "false"),
        (ServiceName.WORKER, "hive.compactor.worker.threads", "0"),
    ],
)
def test_P9_a_service_that_is_off_is_refused(service: ServiceName, name: str, value: str) -> None:
    with pytest.raises(SettingRefused, match=name):
        pace_of(service, Settings.of({name: value}))


class Waits(threading.Event):
    """Records the requested waits in milliseconds, and never waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[int] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(round((timeout or 0) * 1000))
        return self.is_set()


def run(found: list[bool | Exception], pace: CyclePace) -> tuple[list[int], list[Transient]]:
    stop, left = Waits(), iter(found)
    failed: list[Transient] = []

    def cycle() -> bool:
        try:
            one = next(left)
        except StopIteration:
            stop.set()
            return False
        if isinstance(one, Exception):
            raise one
        return one

    run_until(stop, cycle, pace, failed.append)
    return stop.waited, failed


def test_an_idle_worker_waits_longer_each_time_and_goes_on_at_once_with_work() -> None:
    waited, _ = run([False, False, False, True, True, False], CyclePace(10, 35, eager=True))
    assert waited == [10, 20, 35, 10, 20]


def test_an_initiator_keeps_its_interval() -> None:
    assert run([True, False, True], CyclePace(10, 10))[0] == [10, 10, 10, 10]


def test_a_transient_error_is_told_and_tried_again() -> None:
    error = MetastoreUnavailable("gone")
    waited, failed = run([error, False], CyclePace(10, 10))
    assert failed == [error]
    assert len(waited) == 3


def test_any_other_error_ends_the_loop() -> None:
    with pytest.raises(Terminal):
        run([Terminal("broken"), False], CyclePace(10, 10))
