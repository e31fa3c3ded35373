"""The part that a metastore has in replication: `replication.json` in its directory.

It is written before anything is done that relies on it. Two facts keep two primaries from
acknowledging commits at once:

- The primary records its synchronous standby before it tells it so. From then on, and after every
  restart, it acknowledges nothing that this standby lacks.
- Only a standby that has recorded that it is synchronous promotes itself. It then follows nobody,
  so its old primary acknowledges nothing any more.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from acid_platform.base.disk import sync_path
from acid_platform.errors import MetastoreDamaged
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.wire import PRIMARY


@dataclass(frozen=True, slots=True)
class Membership:
    """The role of a metastore, and that of the other one."""

    role: str = PRIMARY
    term: int = 0
    """How often a standby was promoted before; clients refuse a lower one than they have seen."""
    primary: str = ""
    """The address that a standby follows."""
    standby: str = ""
    """The id of the standby: its own, or that of the primary's synchronous one. Empty: none."""
    synchronous: bool = False
    """Whether the primary acknowledges no commit that the standby lacks."""
    automatic: bool = True
    """Whether a synchronous standby promotes itself when its primary is gone."""

    @classmethod
    def read(cls, home: Home) -> Membership:
        """If nothing is recorded, a primary of term 0 without a standby.

        Raises MetastoreDamaged.
        """
        path = _path(home)
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise MetastoreDamaged(
                f"{path} can't be read: {error}; restore a backup, or make this metastore a standby"
                " again (`acid metastore standby --of ADDRESS --replace`)"
            ) from error

    def write(self, home: Home) -> None:
        """Makes it durable. Raises OSError."""
        path = _path(home)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self)))
        draft.chmod(0o600)
        sync_path(draft)
        draft.rename(path)
        sync_path(path.parent)


def _path(home: Home) -> Path:
    return home.path / "replication.json"
