"""`make names`: no two modules and no two public classes of the library share a name.

A name that stands in two places makes a reader guess which one a text means. Exceptions need a
reason; one that no longer applies is an error too. Nor does a docstring begin with "Of" or "The
same", which finishes a sentence that stands elsewhere. Variables are named after what they hold:
words that say nothing of it, such as `one`, need an adjective, or give way to another noun.
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

VAGUE: dict[str, int] = {
    **{"one": 8, "place": 25, "thing": 4, "obj": 1},
    **dict.fromkeys(("stuff", "tmp", "temp", "foo", "misc", "res"), 0),
}
"""Words that no variable has for its name, but so many that are left: the numbers only fall."""


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


def vague(library: Path) -> Iterator[str]:
    """A line for each word that more variables have for their name than are left of it."""
    bound: dict[str, list[str]] = defaultdict(list)
    for file in sorted(library.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in VAGUE:
                    bound[name].append(f"{file.relative_to(library)}:{node.lineno}")
    for name, most in VAGUE.items():
        if len(bound[name]) > most:
            yield (
                f"`{name}` is bound {len(bound[name])} times, and {most} are left: name variables"
                f" after what they hold ({', '.join(bound[name][:5])} …)"
            )


def main() -> int:
    """Prints the faults; 1 if there are any."""
    modules, classes = named(LIBRARY)
    found = [*faults(modules, MODULES, "module"), *faults(classes, CLASSES, "class")]
    found += [*unfinished(LIBRARY), *vague(LIBRARY)]
    print("\n".join(found) or f"{len(modules)} modules and {len(classes)} classes: no name twice")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
