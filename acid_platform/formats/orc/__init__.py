"""ORC files, from their bytes up. Other rooms know of ORC what is named here, and no module of it.

A second format for tables with full CRUD is a room like this one: an open file with the members of
OrcFile that other rooms call, a writer of rows with ACID columns, and the codecs that it writes.
"""

from acid_platform.formats.orc.calendars import to_be_stored
from acid_platform.formats.orc.events import (
    ACID_COLUMNS,
    BUCKET,
    CURRENT_TRANSACTION,
    OPERATION,
    ORIGINAL_TRANSACTION,
    ROW,
    ROW_ID,
    acid_schema,
    is_acid,
    user_metadata,
)
from acid_platform.formats.orc.orc_file import (
    BATCH_ROWS,
    OrcFile,
    WideTimestamps,
    finish_plain_file,
    open_orc,
    open_strange_orc,
    reading,
)
from acid_platform.formats.orc.pyorc_rows import orc_fields, orc_schema
from acid_platform.formats.orc.ranges import column_ranges, key_ranges
from acid_platform.formats.orc.stored_columns import WRITTEN_CODECS, require_codec, written_codec
from acid_platform.formats.orc.writer import AcidWriter, OrcWriter

__all__ = [
    "ACID_COLUMNS",
    "BATCH_ROWS",
    "BUCKET",
    "CURRENT_TRANSACTION",
    "OPERATION",
    "ORIGINAL_TRANSACTION",
    "ROW",
    "ROW_ID",
    "WRITTEN_CODECS",
    "AcidWriter",
    "OrcFile",
    "OrcWriter",
    "WideTimestamps",
    "acid_schema",
    "column_ranges",
    "finish_plain_file",
    "is_acid",
    "key_ranges",
    "open_orc",
    "open_strange_orc",
    "orc_fields",
    "orc_schema",
    "reading",
    "require_codec",
    "to_be_stored",
    "user_metadata",
    "written_codec",
]
