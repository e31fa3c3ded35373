"""Checks that a file of another engine holds only rows of its own transaction (P34).

Snapshots choose files by the write id in a directory's name, so a row with another write id would
be seen by too many of them or by too few.
"""

from __future__ import annotations

from acid_platform.errors import CorruptFile
from acid_platform.orc import open_strange_orc, reading
from acid_platform.storage.files import Files

_ORIGINAL, _CURRENT = 1, 4
"""Places of the two columns with write ids among the six ACID columns."""


def require_own_rows(files: Files, path: str, write_id: int, deletes: bool) -> None:
    """Raises CorruptFile if the file lacks the six ACID columns, or names another write id.

    A delete event names the write id of the row that it deletes, and its own as the current one.
    The footer's statistics are enough; only without them the columns are read.
    """
    with reading(path):
        file = open_strange_orc(files, path)
        names = file.acid_columns()
        if not file.nrows:
            return
        for place in (_CURRENT,) if deletes else (_ORIGINAL, _CURRENT):
            name = names[place]
            low, high = file.bounds(name)
            if (low, high) != (write_id, write_id):
                raise CorruptFile(
                    f"{path} has rows whose {name} is {low} to {high}, and its transaction has the"
                    f" write id {write_id}; run the statement again"
                )
