"""ORC files, from their bytes up. Other rooms know of ORC what is named here, and no module of it.

A second format for tables with full CRUD is a room like this one: an open file with the members of
OrcFile that other rooms call, a writer of rows with ACID columns, and the codecs that it writes.
"""

from acid_platform.formats.orc.calendars import to_be_stored
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
    "BATCH_ROWS",
    "WRITTEN_CODECS",
    "AcidWriter",
    "OrcFile",
    "OrcWriter",
    "WideTimestamps",
    "column_ranges",
    "finish_plain_file",
    "key_ranges",
    "open_orc",
    "open_strange_orc",
    "orc_fields",
    "orc_schema",
    "reading",
    "require_codec",
    "to_be_stored",
    "written_codec",
]
