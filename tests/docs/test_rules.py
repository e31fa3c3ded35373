"""The page of rules, the code and the tests name the same rules; no text names a missing file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from scripts.rule_page import PAGE, NotBuilt, Rule, entries

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = entries(PAGE.read_text())
RULES = {entry.id: entry for entry in ENTRIES if isinstance(entry, Rule)}
NOT_BUILT = {entry.id: entry for entry in ENTRIES if isinstance(entry, NotBuilt)}
LETTERS = "".join(dict.fromkeys(entry.id[0] for entry in ENTRIES))

_RANGE = re.compile(rf"\b([{LETTERS}])(\d{{1,2}})(?: to |-)\1(\d{{1,2}})\b")
_ID = re.compile(rf"\b[{LETTERS}]\d{{1,2}}\b")
_OTHER_ID = re.compile(rf"(?<!-)\b(?![{LETTERS}])[A-Z]\d{{1,2}}\b")
_TEXTS = (".py", ".md", ".ipynb", ".toml", ".yml", ".yaml")
_NOT_READ = ("tests/fixtures/", "benchmarks/results/", "docs/internal/rules.md")
_ROOMS = [
    ".ci",
    ".devcontainer",
    ".github",
    "acid_platform",
    "assets",
    "benchmarks",
    "dagster_home",
    "deploy",
    "docs",
    "notebooks",
    "resources",
    "scripts",
    "tests",
]
_DEMO = ("assets/__init__.py", "assets/flights.py", "assets/flights_source.py")

_ANOMALIES = {"G0", "G1", "G2"}
"""Adya's names, which every text about isolation uses."""

_MARK = re.compile(r"pytest\.mark\.(\w+)")
_FILE = re.compile(r"[\w./{}<>*-]*\w\.(?:md|py)\b(?![.(])")
_URL = re.compile(r"https?://\S+")
_SECTION = re.compile(r"\.md,?\s+(?:section|§|\d)|\bsections? \d")
_MADE_UP = {
    "tests/cli/test_project.py": "a project of its own with files that hide modules",
    "tests/tooling/test_repository.py": "modules that break each import contract",
    "tests/docs/test_rules.py": "the examples below",
    "tests/tooling/test_release.py": "a changelog of its own",
    "tests/tooling/test_template.py": "modules of tables in a project of its own",
    "tests/orchestration/test_assets_folder.py": "a project of its own",
    "tests/orchestration/test_dg.py": "a project of its own",
}
"""Tests that create the files that they name."""
_OF_READERS = {
    "assets/shop/orders.py",
    "shop/orders.py",
    "tests/assets/test_shop_orders.py",
    "tests/test_orders.py",
    "assets/nightly.py",
    "acid_dbt.py",
}
"""Files that a reader of the documents creates, by `make new-table`, `acid new` or by hand."""
_OF_OTHERS = {"sitecustomize.py", "duckdb.py", "notes.md", "build/dist/notes.md"}
"""Files that Python looks for, and those that a release makes."""


def named(text: str) -> set[str]:
    """The rules that a text names, as C41, C13 to C21, or test_C13_to_C21_sizes."""
    words = " ".join(text.replace("_", " ").split())
    ids = set(_ID.findall(words))
    for letter, low, high in _RANGE.findall(words):
        ids |= {f"{letter}{number}" for number in range(int(low), int(high) + 1)}
    return ids


@cache
def _there() -> tuple[str, ...]:
    """The files of the project, whether or not it is a git repository."""
    found = (path for name in _ROOMS for path in (ROOT / name).rglob("*"))
    files = (path.relative_to(ROOT) for path in (*ROOT.glob("*"), *found) if path.is_file())
    return tuple(str(path) for path in files if "__pycache__" not in path.parts)


@cache
def texts() -> dict[str, str]:
    """Every text of the project by its path, but for fixtures, results and the page of rules.

    Of assets/ only the demo: what people write there is their own.
    """
    return {
        path: (ROOT / path).read_text()
        for path in _there()
        if (path.endswith(_TEXTS) or path == "Makefile") and not path.startswith(_NOT_READ)
        if not path.startswith(("assets/", "tests/assets/")) or path in _DEMO
    }


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse(texts()[path])


def each_test() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every test, with the path of its module, in a class or not."""
    for path in texts():
        if path.startswith("tests/") and path.endswith(".py"):
            body = parsed(path).body
            classes = [node.body for node in body if isinstance(node, ast.ClassDef)]
            for node in chain(body, *classes):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    yield path, node


def marks_of(path: str, test: ast.FunctionDef) -> set[str]:
    """The marks of all cases of a test. Those of single parameters are not among them."""
    marks = [
        node.value
        for node in parsed(path).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ] + test.decorator_list
    texts_of_marks = [text for text in map(ast.unparse, marks) if ".parametrize(" not in text]
    return set(_MARK.findall(" ".join(texts_of_marks)))


@cache
def named_in(place: str) -> set[str]:
    """The rules that a module names, or a function or class in it."""
    module, _, inner = place.partition(": ")
    path = f"acid_platform/{module}"
    lines = texts()[path].splitlines()
    node: ast.AST = parsed(path)
    for name in inner.split(".") if inner else ():
        [node] = [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.FunctionDef | ast.ClassDef) and child.name == name
        ]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        lines = lines[node.lineno - 1 : node.end_lineno]
    return named("\n".join(lines))


def test_ids_are_in_order_and_each_stands_for_one_rule() -> None:
    for letter in LETTERS:
        for kind in (RULES, NOT_BUILT):
            numbers = [int(id[1:]) for id in kind if id.startswith(letter)]
            assert numbers == sorted(numbers)
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES)
    sentences = [rule.sentence for rule in RULES.values()]
    assert len(set(sentences)) == len(sentences)
    assert all(sentence.endswith(".") for sentence in sentences)


@pytest.mark.parametrize("row", ["| **P1** | A sentence. | `a.py` |", "| **P1** A sentence."])
def test_a_row_that_is_not_understood_is_an_error(row: str) -> None:
    with pytest.raises(ValueError, match="not a row of rules"):
        entries(row)


def test_every_id_that_a_text_names_has_a_rule() -> None:
    known = RULES.keys() | NOT_BUILT.keys()
    unknown = {path: sorted(named(text) - known) for path, text in texts().items()}
    assert {path: ids for path, ids in unknown.items() if ids} == {}


def test_the_code_and_the_documents_have_no_ids_of_other_letters() -> None:
    found = {
        path: sorted(set(_OTHER_ID.findall(text)) - _ANOMALIES)
        for path, text in texts().items()
        if path.startswith(("acid_platform/", "assets/", "resources/", "docs/"))
    }
    assert {path: ids for path, ids in found.items() if ids} == {}


@pytest.mark.more
def test_each_rule_is_named_where_it_is_enforced_and_proved() -> None:
    tests = {
        node.name: named(f"{node.name} {ast.get_docstring(node) or ''}") for _, node in each_test()
    }
    faults = []
    for rule in RULES.values():
        for place in rule.places:
            if rule.id not in named_in(place):
                faults.append(f"{place} does not name {rule.id}")
        for name in rule.tests:
            if rule.id not in tests.get(name, ()):
                faults.append(f"{rule.id}: there is no test {name} that names it")
    assert faults == []


@pytest.mark.more
def test_each_rule_has_a_test_in_make_test() -> None:
    """By the marks in the source; the parameters without a mark count for a test."""
    conformance = "tests/conformance/"
    in_make_test = {
        node.name
        for path, node in each_test()
        if not (marks := marks_of(path, node)) & {"more", "slow", "soak"}
        and ("spark" not in marks or path.startswith(conformance))
    }
    missing = {
        rule.id: rule.tests for rule in RULES.values() if in_make_test.isdisjoint(rule.tests)
    }
    assert missing == {}, f"no test without the mark `more`, nor with Spark in {conformance}"


@pytest.mark.more
def test_what_users_read_names_no_rule() -> None:
    """Messages, listings and pages: the ids of rules are for those who change the code."""
    cited = re.compile(rf"\((?:[^()]*, )?[{LETTERS}]\d{{1,2}}\b[^()]*\)")
    pages = {"docs/internal/architecture.md", "docs/internal/extending.md"}
    places = {}
    for path, text in texts().items():
        if path.startswith(("acid_platform/", "assets/", "resources/")) and path.endswith(".py"):
            places[path] = list(filter(cited.search, _shown_texts(parsed(path))))
        elif (path.startswith("docs/") and path not in pages) or path == "README.md":
            places[path] = cited.findall(text)
    assert {path: shown for path, shown in places.items() if shown} == {}


def _shown_texts(module: ast.Module) -> list[str]:
    """The texts of a module that are not for its readers, as docstrings are."""
    nodes = list(ast.walk(module))
    bare = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
    ]


@pytest.mark.skipif(not (ROOT / _DEMO[1]).exists(), reason="the documents tell of the demo")
def test_every_file_that_a_text_names_exists() -> None:
    """A text may name a file by the end of its path."""
    there = {f"/{path}" for path in _there()}
    missing = {
        (path, name)
        for path, text in texts().items()
        if path not in _MADE_UP
        for name in _files_named(text) - _OF_READERS - _OF_OTHERS
        if not any(file.endswith(f"/{name}") for file in there)
    }
    assert missing == set()


def test_no_text_cites_a_section_of_a_book_that_is_not_here() -> None:
    citing = [
        path for path, text in texts().items() if path not in _MADE_UP and _SECTION.search(text)
    ]
    assert citing == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("see storage.md section 7", {"storage.md"}),
        (
            "(docs/internal/metastore.md, rules/state.py)",
            {"docs/internal/metastore.md", "rules/state.py"},
        ),
        ("MetadataValue.md(text), a.py.orig, assets/<name>.py, https://x.org/a.md", set()),
    ],
)
def test_names_of_files_are_found(text: str, names: set[str]) -> None:
    assert _files_named(text) == names


def _files_named(text: str) -> set[str]:
    """The files of code and documents that a text names, without patterns and addresses."""
    names = {name.lstrip("./") for name in _FILE.findall(_URL.sub("", text))}
    return {name for name in names if not re.search(r"[{}<>*]", name)}
