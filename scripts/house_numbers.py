"""`make lab-numbers`: how large and how tangled the code is, beside the numbers that were recorded.

`make check` prints the numbers that got worse. They are no error: a change may be worth its lines.
`python -m scripts.house_numbers --record` writes today's numbers to scripts/house_numbers.json, in
the commit that means them.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "acid_platform"
RECORDED = Path(__file__).with_suffix(".json")

SHORT_MODULE = 62
"""A module with fewer lines than this fits on a screen."""
MANY_PARAMETERS = 8
ACID_COLUMNS = {"originalTransaction", "currentTransaction", "rowId"}
ORC_NAME = re.compile(r"(^|_)orc(_|$)|^Orc[A-Z]|(^|_)ORC(_|$)|^pyorc$|^acid_schema$|^ACID_COLUMNS$")
VAGUE_NAMES = {"place", "one"}
"""Variables that say too little; they should get an adjective, or another noun."""


def line_count(files: Iterator[Path]) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in files)


def imported_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [f"{module}.{alias.name}" for alias in names]
    return []


def knows_orc(tree: ast.Module) -> bool:
    """True if the code, not only its comments, names ORC or a column of Hive's ACID files."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names = [name]
            case ast.Constant(value=str(text)) if text in ACID_COLUMNS:
                return True
            case _:
                names = [part for name in imported_names(node) for part in name.split(".")]
        if any(ORC_NAME.search(name) for name in names):
            return True
    return False


def bound_names(tree: ast.Module) -> set[str]:
    stored = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return stored | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}


def parameter_count(function: ast.FunctionDef) -> int:
    given = function.args
    names = [a.arg for a in [*given.posonlyargs, *given.args, *given.kwonlyargs]]
    return len([name for name in names if name not in {"self", "cls"}])


def span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def measure() -> dict[str, int]:
    """Each number by its name. All of them are better when they are smaller."""
    modules = sorted(LIBRARY.rglob("*.py"))
    trees = {file: ast.parse(file.read_bytes()) for file in modules}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    at_top = {id(node) for tree in trees.values() for node in tree.body}
    in_functions = {
        id(node)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in at_top
    }
    raises = [node for node in nodes if isinstance(node, ast.Raise)]
    formats = re.compile(r"acid_platform/formats/")
    lengths = {file: line_count(iter([file])) for file in modules}
    contracts = (ROOT / "pyproject.toml").read_text()
    ignored = re.findall(r"^ignore_imports = \[(.*?)\]", contracts, re.MULTILINE | re.DOTALL)
    documents = [p.read_text() for p in (ROOT / "docs").glob("*.md")]
    internal = [p.read_text() for p in (ROOT / "docs" / "internal").glob("*.md")]
    return {
        "library: lines of Python": sum(lengths.values()),
        "library: lines of Java": line_count(LIBRARY.rglob("*.java")),
        "library: modules": len(modules),
        "library: folders with modules": len({file.parent for file in modules}),
        f"library: modules shorter than {SHORT_MODULE} lines": sum(
            count < SHORT_MODULE and file.name != "__init__.py" for file, count in lengths.items()
        ),
        "library: lines of imports": sum(map(span, imports)),
        "library: imports inside functions": len(in_functions),
        "library: imports that the contracts ignore": sum(text.count("->") for text in ignored),
        "library: raise statements": len(raises),
        "library: lines of raise statements": sum(map(span, raises)),
        f"library: functions with {MANY_PARAMETERS} parameters or more": sum(
            parameter_count(function) >= MANY_PARAMETERS for function in functions
        ),
        "library: lines of the longest function": max(map(span, functions)),
        "library: modules outside of the formats that know ORC": sum(
            knows_orc(tree)
            for file, tree in trees.items()
            if not formats.match(file.relative_to(ROOT).as_posix())
        ),
        "library: modules that bind `place` or `one`": sum(
            bool(VAGUE_NAMES & bound_names(tree)) for tree in trees.values()
        ),
        "tests: lines of Python": line_count((ROOT / "tests").rglob("*.py")),
        "tests: modules": sum(1 for _ in (ROOT / "tests").rglob("*.py")),
        "scripts and benchmarks: lines of Python": line_count(
            file for folder in ("scripts", "benchmarks") for file in (ROOT / folder).rglob("*.py")
        ),
        "documents: pages": len(documents),
        "documents: words": sum(len(text.split()) for text in documents),
        "documents: words of internal pages": sum(len(text.split()) for text in internal),
        "make: targets that `make help` shows": len(
            re.findall(r"^[a-z-]+:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
        ),
    }


def table(now: dict[str, int], recorded: dict[str, int], worse_only: bool) -> list[str]:
    """A line for each number, or for each that got worse."""
    rows = []
    for name, count in now.items():
        before = recorded.get(name)
        if worse_only and (before is None or count <= before):
            continue
        change = "" if before in (None, count) else f"  ({count - before:+,} since it was recorded)"
        rows.append(f"{name:<56}{count:>9,}{change}")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="make lab-numbers", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write today's numbers")
    parser.add_argument("--worse", action="store_true", help="print only what got worse")
    asked = parser.parse_args()
    now = measure()
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if asked.record:
        RECORDED.write_text(json.dumps(now, indent=1) + "\n")
    rows = table(now, recorded, asked.worse)
    if asked.worse and rows:
        print("Larger than recorded (no error; `make lab-numbers` shows all):")
    print("\n".join(rows) or "numbers: none is worse than recorded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
