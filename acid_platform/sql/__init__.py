"""Hive SQL over the tables of a warehouse: sqlglot parses it, one of the engines runs it."""

from acid_platform.sql.answers import Answer, Done
from acid_platform.sql.sql_session import SqlSession

__all__ = ["Answer", "Done", "SqlSession"]
