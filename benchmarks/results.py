"""Saving results: JSON to compare, charts to look at, and a description of the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """A description of the machine, with its load at the end of the run."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 1),
    }


def save(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def chart(path: Path, title: str, ratios: Mapping[str, Mapping[str, float]]) -> None:
    """Save a bar chart with a group of bars for each entry of `ratios`, and a line at 1."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    groups = list(ratios)
    names = list(next(iter(ratios.values())))
    figure, axes = pyplot.subplots(figsize=(10, 4.5))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        axes.bar(
            [i + number * width for i in range(len(groups))],
            [ratios[group][name] for group in groups],
            width,
            label=name,
        )
    axes.axhline(1, color="grey", linewidth=1)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(groups))], groups)
    axes.set_ylabel("times")
    axes.set_title(title)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)
