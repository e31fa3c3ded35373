"""Reading and writing files of insert-only tables with Spark's data sources, without loss."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, DataFrameReader
from pyspark.sql import functions as F

from acid_platform.engine.spark.spark_types import spark_schema, spark_type
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column as TableColumn

_LINE = "value"
_TIMES = {"timestampFormat": "yyyy-MM-dd HH:mm:ss[.SSSSSS]", "dateFormat": "yyyy-MM-dd"}
_OPTIONS = {
    "json": {"mode": "FAILFAST", **_TIMES},
    "csv": {
        "mode": "FAILFAST",
        "header": "false",
        "escape": '"',
        "multiLine": "true",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        **_TIMES,
    },
}
"""In csv NULL is an empty field, and an empty string is a quoted empty field."""


def _options(stored: FileFormat, writing: bool) -> dict[str, str]:
    options = dict(_OPTIONS.get(stored.name, {}))
    if stored.name == "csv":
        options |= {"sep": stored.options["delimiter"], "nullValue": stored.options["null"]}
        if writing:
            options["emptyValue"] = '""'
        elif not stored.options["null"]:
            # Otherwise a quoted empty string would be read as NULL too; an empty field still is.
            options["nullValue"] = "\0"
    return options


def read_plain(
    reader: DataFrameReader, uris: list[str], stored: FileFormat, table: Sequence[TableColumn]
) -> DataFrame:
    """The table's columns from its files; a value that does not fit its column is an error."""
    if stored.name != "text":
        return (
            reader.schema(spark_schema(table))
            .options(**_options(stored, False))
            .load(uris, stored.name)
        )
    # Spark's csv reader reads an empty field as NULL, Hive's text format does not.
    fields = F.split(F.col(_LINE), re.escape(stored.options["delimiter"]), -1)
    return reader.text(uris).select(
        *(
            F.nullif(F.get(fields, F.lit(i)), F.lit(stored.options["null"]))
            .cast(spark_type(column.type))
            .alias(column.name)
            for i, column in enumerate(table)
        )
    )


def write_plain(
    frame: DataFrame,
    stored: FileFormat,
    columns: Sequence[str],
    partition: Sequence[str],
    given: Mapping[str, str],
    uri: str,
) -> None:
    """Writes `columns` of the frame into files, by `partition`.

    A string that can't be stored is an error. `given`: options for the writer, of which
    `compression` is for ORC only.
    """
    options = {**given, **_options(stored, writing=True)}
    if stored.name != "orc":
        options.pop("compression")
    if stored.name == "text":
        frame = frame.select(_line(stored, columns).alias(_LINE), *partition)
    writer = frame.write.mode("error").format(stored.name).options(**options)
    writer.partitionBy(*partition).save(uri)


def _line(stored: FileFormat, columns: Sequence[str]) -> Column:
    delimiter, null = stored.options["delimiter"], stored.options["null"]
    fields = []
    for name in columns:
        text = F.col(quoted(name)).cast("string")
        lost = text.contains(delimiter) | text.rlike("[\r\n]") | (text == null)
        message = F.concat(
            F.lit(
                f"[TEXT_VALUE_LOST] column {name} can't be stored in a text file:"
                " it has a delimiter or line end, or stands for NULL: "
            ),
            text,
        )
        kept = F.when(lost, F.raise_error(message)).otherwise(text)
        fields.append(F.coalesce(kept, F.lit(null)))
    return F.concat_ws(delimiter, *fields)
