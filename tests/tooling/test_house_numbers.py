"""`make lab-numbers`: what is counted, and what `make check` prints."""

import ast
import json

import pytest

from scripts import house_numbers


@pytest.mark.parametrize(
    "code",
    [
        "from acid_platform.formats.orc import writer",
        "import pyarrow.orc as orc",
        "import pyorc",
        "field = 'originalTransaction'",
        "OrcFile(path)",
        "table.orc_schema",
        "def read(orc_file): ...",
        "schema.ACID_COLUMNS",
    ],
)
def test_a_module_knows_orc(code: str) -> None:
    assert house_numbers.knows_orc(ast.parse(code))


@pytest.mark.parametrize("code", ["force = 1", "'''A file of ORC.'''", "import orchard", "torch.x"])
def test_a_module_does_not_know_orc(code: str) -> None:
    assert not house_numbers.knows_orc(ast.parse(code))


def test_make_check_prints_what_got_worse() -> None:
    recorded = {"larger": 1, "smaller": 3, "equal": 2}
    now = {"larger": 2, "smaller": 2, "equal": 2, "new": 5}
    (row,) = house_numbers.table(now, recorded, worse_only=True)
    assert row.startswith("larger") and "+1" in row
    assert len(house_numbers.table(now, recorded, worse_only=False)) == 4


@pytest.mark.more
def test_each_number_is_recorded() -> None:
    recorded = json.loads(house_numbers.RECORDED.read_text())
    assert recorded.keys() == house_numbers.measure().keys()
