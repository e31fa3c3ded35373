"""Without the demo's assets, its tests are left out."""

from __future__ import annotations

from tests.conftest import HAS_DEMO

collect_ignore_glob = [] if HAS_DEMO else ["test_*.py"]
