"""When Dagster should materialize a table again."""

from __future__ import annotations

import dagster as dg


def upstream_changed() -> dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]:
    """As AutomationCondition.eager, but only where an upstream's data version has changed.

    The data version of a table is its committed write id: a materialization that wrote nothing
    keeps it, so that nothing downstream is computed again.
    """
    changed = dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())
    return (
        (changed | dg.AutomationCondition.newly_missing()).since_last_handled()
        & ~dg.AutomationCondition.any_deps_missing()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
    )
