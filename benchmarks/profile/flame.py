"""A flame graph as an SVG file: the width of a frame is its share of the samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 1400, 16
LEAST = 0.4
"""Frames that would be narrower, in pixels, are left out."""
_COLOURS = ("#f4a259", "#f6bd60", "#e76f51", "#e9c46a", "#ee8959")


@dataclass(slots=True)
class Node:
    weight: int = 0
    below: dict[str, Node] = field(default_factory=dict)


def tree(stacks: Mapping[str, int]) -> Node:
    """The calls of stacks, whose frames are joined by `;` from the outermost on."""
    root = Node()
    for stack, count in stacks.items():
        node = root
        node.weight += count
        for frame in stack.split(";"):
            node = node.below.setdefault(frame, Node())
            node.weight += count
    return root


def write(path: Path, title: str, stacks: Mapping[str, int]) -> None:
    """Writes the graph; the tooltip of a frame names it with its share."""
    root = tree(stacks)
    shapes: list[str] = []
    deepest = _draw(root, 0.0, 0, WIDTH / max(root.weight, 1), root.weight, shapes)
    height = (deepest + 2) * HEIGHT
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        ' font-family="monospace" font-size="11">\n'
        f'<text x="4" y="12">{escape(title)}, {root.weight} samples</text>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def _draw(node: Node, left: float, depth: int, scale: float, total: int, shapes: list[str]) -> int:
    """Appends what is below the node; returns the depth of the deepest frame."""
    deepest = depth
    for name, below in sorted(node.below.items()):
        width = below.weight * scale
        if width < LEAST:
            continue
        y = (depth + 1) * HEIGHT
        colour = _COLOURS[sum(map(ord, name)) % len(_COLOURS)]
        shown = escape(name[-int(width / 6.7) :]) if width > 30 else ""
        shapes.append(
            f"<g><title>{escape(name)}: {below.weight / total:.1%}</title>"
            f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT - 1}"'
            f' fill="{colour}"/><text x="{left + 2:.1f}" y="{y + 12}">{shown}</text></g>'
        )
        deepest = max(deepest, _draw(below, left, depth + 1, scale, total, shapes))
        left += width
    return deepest
