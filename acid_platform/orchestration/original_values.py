"""What values were before `coerce=True` changed them: beside rows that fail a check, and in the
table of rejected rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from acid_platform.orchestration.check_results import Finding, data_docs
from acid_platform.values.coercion import Coerced, Original

_MOST_TEXTS = 3
"""So many originals are shown beside one row, if several rows look like it."""


def with_originals(findings: Sequence[Finding], coerced: Mapping[str, Coerced]) -> list[Finding]:
    """The findings; beside a changed value of a failing row stands what it was.

    A row is known by the values that are shown of it. `coerced` is that of the transaction.
    """
    shown = [_with_originals(finding, coerced) for finding in findings]
    if shown == [*findings]:
        return shown
    page = data_docs(shown)
    return [replace(finding, docs=page) if finding.docs else finding for finding in shown]


def _with_originals(finding: Finding, coerced: Mapping[str, Coerced]) -> Finding:
    rows = [*_rows(finding)]
    more = [_texts(row, coerced) for row in rows]
    if not any(more):
        return finding
    names = sorted({name for each in more for name in each})
    shown = [
        {**row, **{name: texts.get(name, "") for name in names}}
        for row, texts in zip(rows, more, strict=True)
    ]
    return replace(finding, details={**finding.details, "unexpected_rows": shown})


def _rows(finding: Finding) -> Iterator[Mapping[str, Any]]:
    """The failing rows that the finding shows, by the names of their columns."""
    details = finding.details
    columns = [details[name] for name in ("column", "column_A", "column_B") if name in details]
    rows = details.get("unexpected_rows") or details.get("partial_unexpected_list")
    for row in rows or ():
        if isinstance(row, Mapping):
            yield row
        elif columns:
            values = row if len(columns) > 1 and isinstance(row, tuple | list) else [row]
            yield dict(zip(columns, values, strict=False))


def _texts(row: Mapping[str, Any], coerced: Mapping[str, Coerced]) -> dict[str, str]:
    found = {}
    for name in row:
        if counted := coerced.get(name.lower()):
            given = dict.fromkeys(each.given for each in counted.originals if _is(each, row))
            if given:
                rest = ", …" if len(given) > _MOST_TEXTS else ""
                found[f"{name} as given"] = ", ".join([*given][:_MOST_TEXTS]) + rest
    return found


def _is(original: Original, row: Mapping[str, Any]) -> bool:
    """Whether the row may be that of the original."""
    stored = original.stored
    known = {name.lower(): value for name, value in row.items() if name.lower() in stored}
    return bool(known) and all(stored[name] == value for name, value in known.items())


def originals_by_row(coerced: Mapping[str, Coerced], rows: int) -> pa.Array | None:
    """For each of the rows its changed values as they were, such as `amount: 'x' (str)`; None if
    there are none at all."""
    texts: dict[int, str] = {}
    for column, counted in coerced.items():
        for each in counted.originals:
            before = f"{texts[each.row]}; " if each.row in texts else ""
            texts[each.row] = f"{before}{column}: {each.given}"
    return pa.array([texts.get(row) for row in range(rows)], pa.string()) if texts else None
