"""All operations of the metastore, and their answers. Client and server share each declaration.

To add an operation, declare it here and write its handler in the rules.
"""

from acid_platform.metastore.operations.compaction import *  # noqa: F403
from acid_platform.metastore.operations.history import *  # noqa: F403
from acid_platform.metastore.operations.other_engines import *  # noqa: F403
from acid_platform.metastore.operations.shows import *  # noqa: F403
from acid_platform.metastore.operations.tables import *  # noqa: F403
from acid_platform.metastore.operations.transactions import *  # noqa: F403
