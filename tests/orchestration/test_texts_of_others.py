"""Texts that strangers wrote stay texts, in Dagster's pages, in HTML and on a terminal (P67)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from markdown_it import MarkdownIt

from acid_platform.display import markdown_text
from acid_platform.display.listing import show_table
from acid_platform.engine.interface import ArrowResult
from acid_platform.errors import InvalidDefinition, visible
from acid_platform.metastore.records import ViewRecord
from acid_platform.orchestration import check_results, checks, components, evaluation
from acid_platform.orchestration.metadata import table_schema

LINK, PICTURE = "[log in](http://127.0.0.1:9/x)", "![](http://127.0.0.1:9/x.png)"
HOSTILE = [
    f"'\n```\n\n{LINK} {PICTURE}\n",
    f"'\n``````\n{LINK}\n~~~\n{PICTURE}",
    f"| {LINK} |\n|---|\n| {PICTURE} |",
    f"\\| {LINK} \\` `{PICTURE}`",
    f"\\{LINK} \\\\{LINK} \\!{PICTURE}",
    "[log in]\n\n[log in]: http://127.0.0.1:9/x",
    "<http://127.0.0.1:9/x> <a@b.example> http://127.0.0.1:9/x HTTPS://x.example www.x.example",
    "&lt;a&gt; &#91;a](http://127.0.0.1:9/x) <!-- <b> --> <script>alert(1)</script>",
    "<img src=http://127.0.0.1:9/x onerror=alert(1)>\n<div>\n\n" + LINK,
    "\x1b]8;;http://127.0.0.1:9/x\x07log in\x1b]8;;\x07 \x1b[2J \u202egnp.exe \x9b31m",
    "```sql\nselect 1\n```",
    "``` `` ` ```` \n````\n" + PICTURE,
    "# a\n  ###### b\n#\nc\n===\nd\n---\n- - -\n* * *\n___\n",
    "- a\n+ b\n* c\n1. d\n2) e\n> f\n=\n-\n1.",
    "*a* **b** _c_ __d__ ___e___ _*f*_ ~g~ ~~h~~ &amp; &#35; i_j_k 2*3*4 -5 1.5",
]
"""What would become a link, a picture, HTML, another page or an order to a terminal."""


def queries(text: str) -> str:
    text = text.replace("'", "")
    view = ViewRecord("db.v", f"SELECT '{text}' AS y FROM db.t", (("y", "string"),))
    return str(components._of_query(view, {"db.t": ["x"]})["sql"].md_str)


def findings(text: str) -> str:
    details = {
        "observed_value": text,
        "partial_unexpected_index_list": [{"id": text, text: text}],
        "partial_unexpected_list": [text],
    }
    one = check_results.Finding(text, False, True, details)
    return check_results.data_docs([one, one])


def comments(text: str) -> str:
    table = SimpleNamespace(
        name="db.t",
        location="/t",
        columns=(("x", "int"),),
        partition_columns=(),
        comments={"x": text},
        constraints=(),
        properties={"comment": text},
    )
    view = ViewRecord("db.v", "SELECT 1 AS x", (("x", "int"),), properties={"comment": text})
    metastore: Any = SimpleNamespace(tables=lambda: [table], views=lambda: [view])
    shown = [known["comment"] for _, known in components._known(metastore)]
    columns = table_schema((("x", "int"),), (("k", "int"),), {"x": text, "k": text}, ())
    shown += [str(column.description) for column in columns.columns]
    assert len({*shown}) == 1
    return str(shown[0])


MD = ".md"
PRODUCERS: list[Callable[[str], str]] = [
    queries,
    findings,
    comments,
    lambda text: markdown_text.escaped_items([text, text]),
    lambda text: markdown_text.code_block(text, "sql"),
]


def tokens(page: str) -> Iterator[Any]:
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(page):
        yield token
        yield from token.children or ()


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("text", HOSTILE)
def test_P67_a_text_of_others_is_no_markup(producer: Callable[[str], str], text: str) -> None:
    page = producer(text)
    kinds = {token.type for token in tokens(page)}
    assert not kinds & {"link_open", "image", "html_inline", "html_block", "code_inline"}
    # Dagster's pages make links of addresses in paragraphs, too.
    written = "".join(token.content for token in tokens(page) if token.type == "text")
    assert not re.search(r"https?://|www\.|\w@\w", written, re.IGNORECASE)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)
    if producer is findings:  # each row has its cells
        widths = {
            len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
            for line in page.splitlines()
            if line.startswith("|")
        }
        assert len(widths) == 2
    if "fence" in kinds:
        assert [token.type for token in tokens(page)] == ["fence"]


@pytest.mark.parametrize("text", HOSTILE)
def test_P67_a_comment_of_others_is_a_paragraph(text: str) -> None:
    page = markdown_text.escaped_text(text)
    every = list(MarkdownIt("gfm-like", {"linkify": False}).parse(page))
    parts = [part for token in every for part in (token, *(token.children or ()))]
    plain = {"paragraph_open", "paragraph_close", "inline", "text", "softbreak", "text_special"}
    assert {token.type for token in parts} <= plain
    shown = "".join(part.content for part in parts if part.type in ("text", "text_special"))
    blanks = str.maketrans("", "", " \n\u2060")
    assert shown.translate(blanks) == visible(text, lines=True).translate(blanks)


def test_P67_texts_reach_dagster_s_markdown_by_one_module() -> None:
    """Metadata of Markdown comes from this module, or from a page that it made."""
    allowed = {"code_block", "escaped_items", "data_docs", "self.docs", "findings[0].docs"}
    room = Path(checks.__file__).parent
    for file in room.glob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("MetadataValue" + MD):
                used = {
                    ast.unparse(part.func if isinstance(part, ast.Call) else part)
                    for part in ast.walk(call.args[0])
                    if isinstance(part, ast.Call | ast.Attribute)
                }
                numbers = all(
                    isinstance(part.format_spec, ast.JoinedStr)
                    and ast.unparse(part.format_spec).strip("f'") == ","
                    for part in ast.walk(call.args[0])
                    if isinstance(part, ast.FormattedValue)
                )
                by_one = used & allowed
                assert by_one or numbers, f"{file.name}:{call.lineno}: {ast.unparse(call)}"


@pytest.mark.parametrize("text", HOSTILE)
def test_P67_a_text_of_others_is_no_html(text: str) -> None:
    listing = show_table([{text: text}], title=text)
    result = ArrowResult(pa.table({text: [text]}), lambda: None, "")  # type: ignore[arg-type, return-value]
    for page in (listing._repr_html_(), result._repr_html_()):
        tags = set(re.findall(r"<\s*/?\s*([a-z!]+)", page, re.IGNORECASE))
        assert tags <= {"div", "style", *["table", "thead", "tbody", "tr", "td", "th", "caption"]}
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", repr(result))


@pytest.mark.more
def test_P67_a_refused_row_is_no_html_in_the_pages_of_great_expectations(tmp_path: Path) -> None:
    site = check_results.DocsSite(f"{tmp_path}/p", f"{tmp_path}/p", "db.t")
    frame = pd.DataFrame({"v": [*HOSTILE, "a"], "id": range(len(HOSTILE) + 1)})
    kinds = {
        "ExpectColumnValuesToBeInSet": {"column": "v", "value_set": ["a"]},
        "ExpectColumnDistinctValuesToBeInSet": {"column": "v", "value_set": ["a"]},
        "ExpectColumnMostCommonValueToBeInSet": {"column": "v", "value_set": ["a"]},
        "ExpectColumnValuesToMatchRegex": {"column": "v", "regex": "^a$"},
    }
    found = evaluation.evaluate(
        frame,
        [checks.Expectation(kind, kind, arguments) for kind, arguments in kinds.items()],
        ["id", "v"],
        site,
    )
    page = Path(found[0].site).read_text()
    assert "127.0.0.1:9" in page
    assert not re.search(r"<(script>alert|img src=http|a@b|http)", page)


@pytest.mark.parametrize(
    ("source", "key", "path"),
    [
        ("landing/{k}.csv", "2024-01-01", "/p/landing/2024-01-01.csv"),
        ("landing/{k}.csv", "2024/01/01", "/p/landing/2024/01/01.csv"),
        ("{k}.csv", "2024-01-01-10:00", "/p/2024-01-01-10:00.csv"),
        ("/in/{k}/a.csv", "x", "/in/x/a.csv"),
        ("s3://b/in/{k}.csv", "x", "s3://b/in/x.csv"),
        ("landing/{k}.csv", "../../etc/x", None),
        ("landing/{k}/x.csv", "..", None),
        ("landing-{k}.csv", "/../../x", None),
        ("{k}.csv", "~root/x", None),
        ("{k}.csv", "/etc/x", None),
        ("{k}.csv", "file:/etc/x", None),
        ("{k}.csv", "s3://theirs/x", None),
        ("/in/{k}.csv", "/../../etc/x", None),
        ("s3://b/in/{k}.csv", "../other/x", None),
    ],
)
def test_P67_a_partition_key_leads_out_of_no_directory(
    source: str, key: str, path: str | None
) -> None:
    if path is not None:
        assert components._path_of(source, {"k": key}, Path("/p")) == path
    else:
        with pytest.raises(InvalidDefinition, match="which is outside of"):
            components._path_of(source, {"k": key}, Path("/p"))
