"""Completing ACID files that a test wrote through Arrow, and what their footers must say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import orc

from acid_platform.formats.orc import ACID_COLUMNS, AcidWriter, acid_schema, open_orc
from acid_platform.layout.acid_keys import RowKey, ascend
from acid_platform.layout.types import Column
from acid_platform.storage.files import Files


def finish(files: Files, path: str, columns: Sequence[Column], deletes: bool) -> None:
    """Writes the file again with the footer of real writers, which Hive's reader asks for."""
    table = open_orc(files, path).read()
    if deletes:
        table = table.set_column(5, "row", pa.nulls(table.num_rows))
    kind = acid_schema(columns, deletes=deletes)
    writer = AcidWriter(files, path, columns, "zlib", deletes)
    for batch in table.combine_chunks().to_batches():
        writer.write(pa.RecordBatch.from_arrays(batch.columns, schema=kind))
    writer.close()


def stripe_ends(file: orc.ORCFile) -> list[RowKey]:
    """The key of the last row of every stripe, which `hive.acid.key.index` has to list."""
    ends: list[RowKey] = []
    for index in range(file.nstripes):
        stripe = file.read_stripe(index, columns=list(ACID_COLUMNS[1:4]))
        keys = [stripe.column(i).to_numpy().astype(np.int64) for i in range(3)]
        assert ascend(*keys)
        ends.append((int(keys[0][-1]), int(keys[1][-1]), int(keys[2][-1])))
    return ends
