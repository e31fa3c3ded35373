"""Names of the columns that carry a row's identity through the engine's frames."""

from __future__ import annotations

WRITE_ID, BUCKET, ROW_ID = "__w", "__b", "__r"
"""Write id of the insert, bucket property, rowId."""

KEYS = (WRITE_ID, BUCKET, ROW_ID)

ROW_ID_COLUMN = "row__id"
"""The virtual column as users name it: struct<writeid,bucketid,rowid>."""

FILE_NAME_COLUMN = "input__file__name"
"""The virtual column as users name it: the URI of the row's file."""
