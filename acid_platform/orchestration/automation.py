"""Conditions under which Dagster materializes a table again."""

from __future__ import annotations

import dagster as dg


def upstream_changed() -> dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]:
    """AutomationCondition.eager, but only if the data version of an upstream has changed.

    The data version of a table is its committed write id. A materialization that writes nothing
    keeps it, so nothing downstream is recomputed.
    """
    changed = dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())
    return (
        (changed | dg.AutomationCondition.newly_missing()).since_last_handled()
        & ~dg.AutomationCondition.any_deps_missing()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
    )
