"""Tests of other modules on a warehouse in each kind of store, with the local engine.

What is imported here is collected here, and gets this module's fixtures.
"""

# ruff: noqa: F403, the names of the tests

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import Warehouse
from tests.history.test_changes import *
from tests.history.test_rollback import *
from tests.history.test_time_travel import *
from tests.stores.conftest import a_bucket, opened
from tests.stores.server import StoreServer

pytestmark = pytest.mark.slow

# They list directories on the local disk.
del test_P36_the_history_that_a_retention_keeps_is_cleaned_after_it  # noqa: F821
del test_P36_a_tag_keeps_its_files_until_it_is_dropped  # noqa: F821
# It makes a table that another module makes too, and reads no file.
del test_P36_what_sql_can_not_read_of_the_past  # noqa: F821
# Many seeds of what others show with few.
del test_P36_many_histories  # noqa: F821
del test_P39_many_histories  # noqa: F821


@pytest.fixture(scope="module")
def warehouse(server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with a_bucket(server, tmp_path_factory.mktemp("shared")), opened() as warehouse:
        yield warehouse


@pytest.fixture
def own(server: StoreServer, tmp_path: Path) -> Iterator[Warehouse]:
    with a_bucket(server, tmp_path), opened() as warehouse:
        yield warehouse
