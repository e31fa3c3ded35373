"""Hive SQL over the tables of a warehouse: sqlglot parses it, one of the engines runs it."""

from acid_platform.sql.answers import Done
from acid_platform.sql.sql_session import Answer, SqlSession
from acid_platform.sql.statements import SUPPORTED

__all__ = ["SUPPORTED", "Answer", "Done", "SqlSession"]
