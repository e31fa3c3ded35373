"""SQL over the tables of a warehouse: SELECT in Spark, SHOW and DESCRIBE from the metastore."""

from acid_platform.sql.execute import run
from acid_platform.sql.statements import SUPPORTED

__all__ = ["SUPPORTED", "run"]
