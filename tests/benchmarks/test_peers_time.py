"""`make lab-bench NAME=peers --until`: a run that measured nothing writes no result."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import __main__ as peers


def test_a_run_without_time_writes_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = {"rows": 100, "seconds": {}, "failures": [], "missing": {}}
    monkeypatch.setattr(peers, "measure", lambda *_: nothing)
    out = tmp_path / "out"
    given = ["peers", "--rows", "100", "--work", str(tmp_path), "--out", str(out)]
    monkeypatch.setattr("sys.argv", given)
    with pytest.raises(SystemExit, match="nothing was measured in time"):
        peers.main()
    assert not out.exists()
