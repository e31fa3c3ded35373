"""The table of a profile: wall clock and CPU by part, and the figures that explain them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

Profile = Mapping[str, Any]
"""What `worker.summary` returns."""
MOST = 12
"""Causes of calls that are listed."""
NOT_OURS = "no function of ours"


def wall(profile: Profile) -> dict[str, float]:
    """Seconds of the driver by part; their sum is the wall clock time of an execution."""
    parts, seconds = profile["parts"], mean(profile)
    in_jobs, in_metastore, in_jvm = (
        parts[f"seconds in {name}"] for name in ("jobs", "metastore", "jvm")
    )
    tasks = min(parts.get("task seconds", 0.0) / profile["cores"], in_jobs)
    found = {
        "JVM calls without a job": in_jvm,
        "jobs: tasks on all cores": tasks,
        "jobs: scheduling, idle cores": in_jobs - tasks,
        "metastore": in_metastore,
    }
    left = max(seconds - sum(found.values()), 0.0)
    for part, share in (profile["python"] or {"planning in Python": 1.0}).items():
        found[part] = left * share
    return found


def cpu(profile: Profile) -> dict[str, float]:
    """CPU seconds of an execution by process and part; tasks' by the samples of their stacks."""
    found = dict(profile["cpu"])
    tasks = found.pop("JVM: tasks", 0.0)
    shares = profile["tasks"] or {"not sampled": 1.0}
    return {
        "Python": found.pop("python", 0.0),
        **{f"tasks: {part}": tasks * share for part, share in shares.items()},
        **found,
    }


def figures(profile: Profile) -> dict[str, str]:
    parts = profile["parts"]
    counts = {
        name: f"{parts.get(key, 0):.1f}".removesuffix(".0")
        for name, key in (
            ("JVM calls", "jvm calls"),
            ("releases of JVM objects", "releases"),
            ("metastore calls", "metastore calls"),
            ("syncs of files", "syncs"),
            ("jobs", "jobs"),
            ("stages", "stages"),
            ("tasks", "tasks"),
        )
    }
    sizes = {
        f"MB {what}": f"{parts.get(f'bytes {what}', 0) / 1e6:.1f}"
        for what in ("read", "written", "shuffled", "spilled")
    }
    return {**counts, **sizes}


def mean(profile: Profile) -> float:
    return statistics.fmean(profile["wall"])


def markdown(content: Mapping[str, Any]) -> str:
    """A section for each statement, with a column for each contender."""
    lines = [f"# Where the time of a statement goes: {content['rows']:,} rows, {content['date']}"]
    lines += [
        "",
        "Milliseconds of an execution, on average. The first parts add up to the wall clock time of"
        " the driver's thread; the CPU time is that of all processes. `scan`, `write`, ... are"
        " shares of the samples of the tasks' stacks. Recording costs time: compare parts, and take"
        " the seconds from the benchmark `peers`.",
    ]
    names = list(content["contenders"])
    statements = dict.fromkeys(
        statement for name in names for statement in content["contenders"][name]["statements"]
    )
    for statement in statements:
        of = {
            name: content["contenders"][name]["statements"].get(statement, None) for name in names
        }
        lines += ["", f"## {statement}", ""]
        lines += [f"| | {' | '.join(names)} |", "|---" + "|---:" * len(names) + "|"]
        lines += _rows("**wall clock**", of, lambda profile: {"": mean(profile)})
        lines += _rows("", of, wall)
        lines += _rows("**CPU**", of, lambda profile: {"": sum(cpu(profile).values())})
        lines += _rows("", of, cpu)
        shown = {name: figures(profile) for name, profile in of.items() if profile}
        for figure in next(iter(shown.values())):
            cells = [shown.get(name, {}).get(figure, "-") for name in names]
            if set(cells) - {"-", "0"} and set(cells) - {"-", "0.0"}:
                lines.append(f"| {figure} | {' | '.join(cells)} |")
        for name, profile in of.items():
            lines += _callers(name, profile)
    lines += ["", "## How it was measured", ""]
    for name in names:
        known = content["contenders"][name]
        executions = {profile["executions"] for profile in known["statements"].values()}
        lines.append(
            f"- {name}: {', '.join(f'{key} {value}' for key, value in known['versions'].items())};"
            f" {min(executions)} to {max(executions)} executions."
        )
    machine = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    return "\n".join([*lines, f"- Machine: {machine}.", ""])


def _callers(name: str, profile: Profile | None) -> list[str]:
    """The functions of ours that call the JVM most, and the operations of the metastore."""
    lines = []
    for kind, title in (("jvm", "JVM calls by function"), ("metastore", "metastore calls")):
        found = (profile or {}).get("callers", {}).get(kind, {})
        most = sorted(found, key=lambda cause: -found[cause][1])[:MOST]
        if most and set(most) != {NOT_OURS}:
            shown = (
                f"{cause} {found[cause][0]:.3g} in {1e3 * found[cause][1]:.0f} ms" for cause in most
            )
            lines += ["", f"{name}, {title}: {'; '.join(shown)}."]
    return lines


def _rows(title: str, of: Mapping[str, Profile | None], parts: Any) -> list[str]:
    """A line for each part, the largest of the first contender first."""
    found = {name: parts(profile) if profile else {} for name, profile in of.items()}
    order: dict[str, float] = {}
    for known in found.values():
        for part, seconds in known.items():
            order.setdefault(part, 0.0)
            order[part] = max(order[part], seconds)
    first = next(iter(found.values()))
    lines = []
    for part in sorted(order, key=lambda part: (-first.get(part, 0.0), part)):
        if order[part] < 0.0005:
            continue
        cells = [f"{1000 * known[part]:.0f}" if part in known else "-" for known in found.values()]
        lines.append(f"| {title}{part} | {' | '.join(cells)} |")
    return lines
