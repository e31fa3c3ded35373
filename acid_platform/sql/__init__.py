"""Hive's SQL over the tables of a warehouse: parsed by sqlglot, queries run by Spark."""

from acid_platform.sql.answers import Done
from acid_platform.sql.session import Answer, SqlSession
from acid_platform.sql.statements import SUPPORTED

__all__ = ["SUPPORTED", "Answer", "Done", "SqlSession"]
