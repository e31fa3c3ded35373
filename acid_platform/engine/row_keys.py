"""Names of the columns that carry a row's identity through the engine's frames."""

from __future__ import annotations

WRITE_ID, BUCKET, ROW_ID = "__w", "__b", "__r"
"""Write id of the insert, bucket property, rowId."""

KEYS = (WRITE_ID, BUCKET, ROW_ID)
