"""The report of the benchmark `peers` in Markdown, and the merging of results of several runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.comparison.driver import medians
from benchmarks.comparison.statements import WHERE

SUBJECTS: Mapping[str, str] = {
    "ours": "Ours with the Spark engine",
    "ours-auto": "Ours with the engine that `engine=auto` chooses",
}
"""What is compared with the peers, and what reports call it."""
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
        self.names.sort(key=lambda name: name not in SUBJECTS)
        self.subjects = [name for name in self.names if name in SUBJECTS]
        self.peers = [name for name in self.names if name not in SUBJECTS]
        self.phases = list(self.medians[self.names[0]])
        versions = content["versions"]
        self.sparks = {name: versions.get(name, {}).get("pyspark", name) for name in self.names}

    def plain(self, name: str, phase: str, form: str) -> float | None:
        """Seconds of plain files in the contender's Spark for what the phase is compared with."""
        if phase in NOT_NORMALISED:
            return None
        beside = self.medians.get(f"{form}@{name}", {})
        return beside.get("load" if phase in REWRITES else phase)

    def over_plain(self, name: str, phase: str, form: str) -> float | None:
        return _divided(self.medians[name].get(phase), self.plain(name, phase, form))

    def over_peer(self, subject: str, peer: str, phase: str, form: str | None) -> float | None:
        """Ours over the peer's seconds, both divided by plain files unless `form` is None."""
        if form is None:
            return _divided(self.medians[subject].get(phase), self.medians[peer].get(phase))
        return _divided(self.over_plain(subject, phase, form), self.over_plain(peer, phase, form))

    def kind(self, subject: str, peer: str, kind: str) -> float | None:
        """The geometric mean of a kind's ratios, which in the same Spark are not normalised."""
        form = None if self.sparks[subject] == self.sparks[peer] else "parquet"
        found = [self.over_peer(subject, peer, phase, form) for phase in KINDS[kind]]
        known = [ratio for ratio in found if ratio]
        return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def _divided(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def markdown(content: Mapping[str, Any]) -> str:
    """Seconds, ratios to ours, ratios to plain files, megabytes, versions, settings, failures."""
    ratios = Ratios(content)
    lines = [f"# Our tables beside others in Spark: {content['rows']:,} rows, {content['date']}"]
    lines += _seconds(ratios)
    if ratios.peers:
        for subject in ratios.subjects:
            lines += _kinds(ratios, subject)
            lines += _beside_ours(ratios, subject)
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


def _kinds(ratios: Ratios, subject: str) -> list[str]:
    found = {kind: [ratios.kind(subject, peer, kind) for peer in ratios.peers] for kind in KINDS}
    rows = [(kind, [_cell(ratio) for ratio in of_peers]) for kind, of_peers in found.items()]
    ahead = []
    for of_kinds in zip(*found.values(), strict=True):
        known = [ratio for ratio in of_kinds if ratio is not None]
        ahead.append(f"{sum(ratio < 1 for ratio in known)} of {len(known)}")
    return [
        "",
        f"## {SUBJECTS[subject]}, over the peer: kinds of work",
        "",
        "Below 1 ours is ahead. If the peer has another Spark than ours, each side is divided by"
        " plain Parquet of its own Spark, a change or compaction by the load of all rows.",
        *_table(ratios.peers, [*rows, ("ours is ahead in", ahead)]),
    ]


def _beside_ours(ratios: Ratios, subject: str) -> list[str]:
    rows = []
    for phase in ratios.phases:
        cells = []
        for peer in ratios.peers:
            raw, normalised = (
                ratios.over_peer(subject, peer, phase, form) for form in (None, "parquet")
            )
            cells.append(_cell(raw) + (f" ({normalised:.2f})" if normalised else ""))
        rows.append((phase, cells))
    brackets = ["", "In brackets after division by plain Parquet of each one's own Spark."]
    divided = any("(" in cell for _, cells in rows for cell in cells)
    return [
        "",
        f"## {SUBJECTS[subject]}, over the peer: seconds",
        *(brackets if divided else ()),
        *_table(ratios.peers, rows),
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
