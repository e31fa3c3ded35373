"""The report of `make bench-peers` in Markdown, and the merging of results of several runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.comparison.driver import medians
from benchmarks.comparison.statements import WHERE

SUBJECT = "ours"
KINDS: Mapping[str, Sequence[str]] = {
    "bulk load": ("load",),
    "wide scan": ("wide, loaded", "wide, changed"),
    "wide scan after 20 inserts": ("wide, 20 inserts later",),
    "narrow scan": ("narrow, loaded", "narrow, changed"),
    "selective scan": ("selective, loaded", "selective, changed"),
    "UPDATE": ("update",),
    "DELETE": ("delete_one", "delete_5pct"),
    "MERGE": ("merge",),
    "INSERT of 1,000 rows": ("insert of 1,000 rows",),
    "compaction": ("compaction",),
}
"""The ten kinds of work, and the statements whose geometric mean stands for each."""
REWRITES = (*WHERE, "merge", "compaction")
"""Statements that are normalised by the plain load, since plain files would have to be rewritten.
"""
NOT_NORMALISED = ("cleaning",)


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Both results of the same size as one. Versions, settings and bytes are the newer ones'."""
    seconds: dict[str, dict[str, list[float]]] = dict(old["seconds"])
    for name, phases in new["seconds"].items():
        known = seconds.setdefault(name, {})
        for phase, taken in phases.items():
            known[phase] = [*known.get(phase, []), *taken]
    both = {
        part: {**old[part], **new[part]} for part in ("bytes", "missing", "versions", "settings")
    }
    missing = {name: why for name, why in both["missing"].items() if name not in seconds}
    commits = dict.fromkeys((*old["commit"].split(", "), new["commit"]))
    return {
        **new,
        **both,
        "seconds": seconds,
        "missing": missing,
        "failures": [*old["failures"], *new["failures"]],
        "commit": ", ".join(commits),
    }


class Ratios:
    """Medians of a result, also divided by plain files of the same Spark."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.medians = medians(content["seconds"])
        self.names = [name for name in self.medians if "@" not in name]
        self.names.sort(key=lambda name: name != SUBJECT)
        self.phases = list(self.medians[self.names[0]])

    def plain(self, name: str, phase: str, form: str) -> float | None:
        """Seconds of plain files in the contender's Spark for what the phase is compared with."""
        if phase in NOT_NORMALISED:
            return None
        beside = self.medians.get(f"{form}@{name}", {})
        return beside.get("load" if phase in REWRITES else phase)

    def over_plain(self, name: str, phase: str, form: str) -> float | None:
        return _divided(self.medians[name].get(phase), self.plain(name, phase, form))

    def over_peer(self, peer: str, phase: str, form: str | None) -> float | None:
        """Ours over the peer's seconds, both divided by plain files unless `form` is None."""
        if form is None:
            return _divided(self.medians[SUBJECT].get(phase), self.medians[peer].get(phase))
        return _divided(self.over_plain(SUBJECT, phase, form), self.over_plain(peer, phase, form))

    def kind(self, peer: str, kind: str) -> float | None:
        """The geometric mean of the normalised ratios of a kind of work."""
        found = [self.over_peer(peer, phase, "parquet") for phase in KINDS[kind]]
        known = [ratio for ratio in found if ratio]
        return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def _divided(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def markdown(content: Mapping[str, Any]) -> str:
    """Seconds, ratios to ours, ratios to plain files, megabytes, versions, settings, failures."""
    ratios = Ratios(content)
    lines = [f"# Our tables beside others in Spark: {content['rows']:,} rows, {content['date']}"]
    lines += _seconds(ratios)
    if SUBJECT in ratios.names and len(ratios.names) > 1:
        lines += _kinds(ratios)
        lines += _beside_ours(ratios)
    lines += _over_plain(ratios)
    lines += _megabytes(content, ratios.names)
    lines += ["", "## How it was measured", ""]
    rounds = {name: len(content["seconds"][name].get("load", ())) for name in ratios.names}
    lines += [f"- Rounds: {_pairs(rounds)}. A statement's median is over all of them."]
    lines += [f"- {name}: {_pairs(content['versions'].get(name, {}))}." for name in ratios.names]
    lines += [f"- {name} is missing: {why}." for name, why in content["missing"].items()]
    lines += [
        f"- Settings of {name}: {_pairs(given)}."
        for name, given in content["settings"].items()
        if given
    ]
    lines += [f"- Machine: {_pairs(content['machine'])}. Ours at commit {content['commit']}."]
    lines += [f"- WRONG: {failure}" for failure in content["failures"]]
    if not content["failures"]:
        lines += ["- Every answer was compared with DuckDB's on the raw rows: all are equal."]
    return "\n".join([*lines, ""])


def _pairs(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in given.items())


def _table(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    yield ""
    yield f"| | {' | '.join(columns)} |"
    yield "|---" + "|---:" * len(columns) + "|"
    for name, cells in rows:
        yield f"| {name} | {' | '.join(cells)} |"


def _cell(number: float | None, digits: int = 2) -> str:
    return "-" if number is None else f"{number:.{digits}f}"


def _seconds(ratios: Ratios) -> list[str]:
    rows = [
        (phase, [_cell(ratios.medians[name].get(phase), 3) for name in ratios.names])
        for phase in ratios.phases
    ]
    return ["", "## Seconds (medians)", *_table(ratios.names, rows)]


def _kinds(ratios: Ratios) -> list[str]:
    peers = [name for name in ratios.names if name != SUBJECT]
    rows = [(kind, [_cell(ratios.kind(peer, kind)) for peer in peers]) for kind in KINDS]
    ahead = []
    for peer in peers:
        known = [ratio for kind in KINDS if (ratio := ratios.kind(peer, kind)) is not None]
        ahead.append(f"{sum(ratio < 1 for ratio in known)} of {len(known)}")
    return [
        "",
        "## Kinds of work: ours over the peer's, each divided by plain Parquet of its own Spark",
        "",
        "Below 1 ours is ahead. A change or compaction is divided by the load of all rows.",
        *_table(peers, [*rows, ("ours is ahead in", ahead)]),
    ]


def _beside_ours(ratios: Ratios) -> list[str]:
    peers = [name for name in ratios.names if name != SUBJECT]
    rows = []
    for phase in ratios.phases:
        cells = []
        for peer in peers:
            raw, normalised = (ratios.over_peer(peer, phase, form) for form in (None, "parquet"))
            cells.append(_cell(raw) + (f" ({normalised:.2f})" if normalised else ""))
        rows.append((phase, cells))
    return [
        "",
        "## Ours over the peer's seconds",
        "",
        "In brackets after division by plain Parquet of each one's own Spark.",
        *_table(peers, rows),
    ]


def _over_plain(ratios: Ratios) -> list[str]:
    names = [name for name in ratios.names if f"parquet@{name}" in ratios.medians]
    if not names:
        return []
    rows = []
    for phase in ratios.phases:
        cells = []
        for name in names:
            parquet, orc = (ratios.over_plain(name, phase, form) for form in ("parquet", "orc"))
            cells.append(_cell(parquet) + (f" ({orc:.2f})" if orc else ""))
        rows.append((phase, cells))
    return [
        "",
        "## Over plain Parquet (in brackets plain ORC) of the same Spark",
        *_table(names, rows),
    ]


def _megabytes(content: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    weighed = [name for name in names if content["bytes"].get(name)]
    if not weighed:
        return []
    labels = list(content["bytes"][weighed[0]])
    rows = [
        (label, [_cell(content["bytes"][name].get(label, 0) / 1e6, 1) for name in weighed])
        for label in labels
    ]
    return ["", "## Megabytes", *_table(weighed, rows)]
