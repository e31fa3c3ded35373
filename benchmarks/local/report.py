"""The report of the benchmark `local` in Markdown."""

from __future__ import annotations

from typing import Any


def markdown(content: dict[str, Any]) -> str:
    """Seconds of every contender, and their ratio to ours (above 1: ours is quicker)."""
    lines = [f"# The local engine beside others, {content['date']}", ""]
    lines += ["| new process | seconds |", "|---|---|"]
    lines += [f"| `{name}` | {seconds:.2f} |" for name, seconds in content["fresh"].items()]
    for size in content["sizes"]:
        names = list(size["seconds"])
        lines += ["", f"## {size['rows']:,} rows", ""]
        lines += ["Medians in seconds; in brackets divided by the local engine's.", ""]
        lines += [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
        for phase, own in size["seconds"][names[0]].items():
            cells = [_cell(size["seconds"][name].get(phase), own) for name in names]
            lines.append(f"| {phase} | {' | '.join(cells)} |")
        versions = "; ".join(
            f"{name}: {', '.join(f'{key} {value}' for key, value in known.items())}"
            for name, known in size["versions"].items()
        )
        lines += ["", f"Versions: {versions}.", ""]
        lines += [f"- WRONG: {failure}" for failure in size["failures"]]
    machine = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    return "\n".join([*lines, "", f"Machine: {machine}.", ""])


def _cell(seconds: float | None, own: float) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.3f} ({seconds / own:.2f})"
