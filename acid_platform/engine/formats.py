"""Insert-only formats as Spark's data sources."""

from __future__ import annotations

from acid_platform.layout.formats import FileFormat


def spark_source(stored: FileFormat) -> tuple[str, dict[str, str]]:
    """Name and options of the data source that reads and writes the format without a loss."""
    match stored.name:
        case "text":
            # Hive's own text knows neither quotes nor escapes.
            return "csv", {"sep": stored.options["delimiter"], "quote": "", "escape": "\x00",
                           "nullValue": stored.options["null"], "emptyValue": "", **_EXACT}
        case "csv":
            return "csv", {"sep": stored.options["delimiter"], "escape": '"',
                           "nullValue": stored.options["null"], "emptyValue": '""', **_EXACT}
        case "json":
            return "json", {"ignoreNullFields": "true", "mode": "FAILFAST", **_TIMES}
        case name:
            return name, {}


_TIMES = {"timestampFormat": "yyyy-MM-dd HH:mm:ss[.SSSSSS]", "dateFormat": "yyyy-MM-dd"}
_EXACT = {"header": "false", "mode": "FAILFAST", "ignoreLeadingWhiteSpace": "false",
          "ignoreTrailingWhiteSpace": "false", **_TIMES}

