"""Properties by which Hive and others protect tables and files, and which nothing here keeps (P72).

A table that only says that it is immutable or encrypted is worse than one that does not say so.
"""

from __future__ import annotations

from collections.abc import Mapping

from acid_platform.errors import InvalidDefinition

_RIGHTS = "a gateway's grants (acid.gateway.grants) say who may write"
_CLEAR = "the files are written in clear text"
_OFF = ("", "false")

_NOT_KEPT: dict[str, tuple[tuple[str, ...], str]] = {
    "immutable": (_OFF, f"INSERT adds rows to it; {_RIGHTS}"),
    "readonly": (_OFF, f"its tables can be written; {_RIGHTS}"),
    "protect_mode": (("",), f"it can be read, written and dropped; {_RIGHTS}"),
    "delta.appendonly": (_OFF, f"its rows can be changed; {_RIGHTS}"),
    "auto.purge": (("", "true"), "what is dropped goes to no trash"),
    "external.table.purge": (("", "true"), "DROP TABLE removes its files"),
    "gc.enabled": (("", "true"), "the Cleaner removes old files, unless NO_CLEANUP is true"),
    "defaulttabletype": (
        ("", "acid", "managed", "managed_table"),
        "DROP TABLE removes the files of each table that is not declared as EXTERNAL",
    ),
    "partition.retention.period": (("",), "no partition goes by itself; DELETE or drop it"),
    "discover.partitions": (_OFF, "MSCK REPAIR TABLE adds partitions, and nothing else does"),
    "orc.encrypt": (("",), _CLEAR),
    "orc.mask": (("",), _CLEAR),
}
"""By name in lower case: the values that promise nothing, and what happens whatever it says."""
_ENCRYPTION = ("orc.key.", "parquet.encryption.", "parquet.crypto.", "encryption.")
_FILES_STAY = ("auto.purge", "external.table.purge", "gc.enabled")
"""What is kept where no file is ever removed."""


def refuse_promises(
    what: str, properties: Mapping[str, str | None], external: bool = False
) -> None:
    """Raises InvalidDefinition for a property that promises a protection which nobody keeps.

    `what` has the properties, such as a table or a database; `external`: one whose files are only
    read.
    """
    for name, text in properties.items():
        key = name.lower()
        harmless, instead = _NOT_KEPT.get(key, (None, _CLEAR))
        if harmless is None and key.startswith(_ENCRYPTION):
            harmless = ("",)
        if harmless is None or text is None or (external and key in _FILES_STAY):
            continue
        if text.strip().lower() not in harmless:
            raise InvalidDefinition(
                f"{what}: {name}={text!r} is refused, since nothing here keeps what it promises:"
                f" {instead}; leave it out"
            )
