"""Hive SQL over the tables of a warehouse: sqlglot parses it, Spark runs the queries."""

from acid_platform.sql.answers import Done
from acid_platform.sql.session import Answer, SqlSession
from acid_platform.sql.statements import SUPPORTED

__all__ = ["SUPPORTED", "Answer", "Done", "SqlSession"]
