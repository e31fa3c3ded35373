"""Names of the columns that carry row ids through the engine's frames."""

from __future__ import annotations

WRITE_ID, BUCKET, ROW_ID = "__w", "__b", "__r"
"""The write id of the insert, the bucket property and the rowId."""

KEYS = (WRITE_ID, BUCKET, ROW_ID)
