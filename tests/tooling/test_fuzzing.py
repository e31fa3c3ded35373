"""Wrong bytes for real processes, before and after the handshake, with fixed seeds.

`python -m tests.fuzzing --minutes 60` does the same for an hour.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.fuzzing import fuzz, makers

pytestmark = pytest.mark.more

SLOW = pytest.mark.slow
"""With TLS, and with a login."""


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=SLOW), 2, pytest.param(3, marks=SLOW)])
def test_no_byte_ends_a_process(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ACID_METASTORE", "ACID_METASTORE_KEY", "ACID_METASTORE_TLS_CA"):
        monkeypatch.delenv(name, raising=False)  # and so put back afterwards
        monkeypatch.setenv(name, "")
    target = makers()[number](tmp_path)
    try:
        fuzz(target, random.Random(number), 15)
        if number < 2:
            target.restart(signal.SIGKILL)
            fuzz(target, random.Random(number), 5)
        target.close()
    finally:
        target.kill()
