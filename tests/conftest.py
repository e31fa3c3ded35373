"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# No deadline: a machine that is busy with Spark would fail a property by its speed.
settings.register_profile("acid", deadline=None)
settings.load_profile("acid")
