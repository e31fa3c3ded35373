"""ORC files, from their bytes up. The room of formats knows of ORC what is named here."""

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
    OrcFile,
    finish_plain_file,
    open_orc,
    open_strange_orc,
)
from acid_platform.formats.orc.pyorc_rows import orc_fields, orc_schema
from acid_platform.formats.orc.strange_files import BATCH_ROWS, reading
from acid_platform.formats.orc.writer import (
    WRITTEN_CODECS,
    AcidWriter,
    OrcWriter,
    require_codec,
    written_codec,
)
from acid_platform.formats.orc.writer_clocks import to_be_stored

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
    "acid_schema",
    "finish_plain_file",
    "is_acid",
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
