"""`make names`: no two modules and no two public classes of the library share a name.

A name that stands in two places makes a reader guess which one a text means. Exceptions need a
reason; one that no longer applies is an error too. Nor does a docstring begin with "Of" or "The
same", which finishes a sentence that stands elsewhere.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

LIBRARY = Path(__file__).parent.parent / "acid_platform"

SIBLINGS = (
    ({"engine/spark", "engine/local"}, "both engines have a module for each kind of work"),
    ({"metastore/rules", "metastore/operations"}, "operations, and the rules that answer them"),
)
"""Folders whose modules may share their names."""

MODULES: dict[str, str] = {"__main__": "Python looks for this name"}
CLASSES: dict[str, str] = {}


def faults(
    places: Mapping[str, list[str]], exceptions: Mapping[str, str], kind: str
) -> Iterator[str]:
    """A line for each name that stands in several places, and for each exception without need."""
    for name, where in sorted(places.items()):
        folders = {str(Path(each).parent) for each in where}
        apart = not any(folders == siblings for siblings, _ in SIBLINGS)
        if len(where) > 1 and apart and name not in exceptions:
            yield f"{kind} {name} stands in {' and '.join(where)}: give one of them another name"
    for name in sorted(exceptions):
        if len(places.get(name, ())) < 2:
            yield f"{kind} {name} stands once: remove it from the exceptions"


def named(library: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The files in which each module name and each public class name stands."""
    modules, classes = defaultdict(list), defaultdict(list)
    for file in sorted(library.rglob("*.py")):
        place = str(file.relative_to(library))
        if file.name != "__init__.py":
            modules[file.stem].append(place)
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(place)
    return modules, classes


def unfinished(library: Path) -> Iterator[str]:
    """A line for each docstring that finishes a sentence of another place."""
    for file in sorted(library.rglob("*.py")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if re.match(r'\s*"""(Of|The same)\b', line):
                yield f"{file.relative_to(library)}:{number}: begin with what it is or does"


def main() -> int:
    """Prints the faults; 1 if there are any."""
    modules, classes = named(LIBRARY)
    found = [*faults(modules, MODULES, "module"), *faults(classes, CLASSES, "class")]
    found += unfinished(LIBRARY)
    print("\n".join(found) or f"{len(modules)} modules and {len(classes)} classes: no name twice")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
