"""All operations of the metastore, and their answers. Client and server share each declaration.

To add an operation, declare it in a module of this package and write its handler in the rules.
What a program asks rarely is loaded when it asks: a read never loads what services ask.
"""

from typing import TYPE_CHECKING

from acid_platform.base.first_use import names_in

if TYPE_CHECKING:
    from acid_platform.metastore.operations.compaction import *  # noqa: F403
    from acid_platform.metastore.operations.listings import *  # noqa: F403
    from acid_platform.metastore.operations.tables import *  # noqa: F403
    from acid_platform.metastore.operations.transactions import *  # noqa: F403
else:
    __getattr__ = names_in(__name__, "tables", "transactions", "listings", "compaction")
