from __future__ import annotations

import pytest

from tests.metastore.world import World


@pytest.fixture
def world() -> World:
    """A metastore's state machine with the table `default.t`."""
    made = World()
    made.create()
    return made
