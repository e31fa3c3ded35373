"""The benchmark `profile`: what a stack belongs to, and that the parts add up to the whole."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.profile import flame
from benchmarks.profile.classes import (
    PLANNING,
    PYTHON_PARTS,
    ROWS,
    jvm_part,
    python_part,
    shares,
    thread_group,
)
from benchmarks.profile.recorder import divided, own, total
from benchmarks.profile.report import markdown, wall


@pytest.mark.parametrize("prefix", [p for p in PYTHON_PARTS if p.startswith("acid_platform")])
def test_the_parts_of_python_name_modules_and_functions_that_exist(prefix: str) -> None:
    module, _, function = prefix.partition(":")
    assert importlib.util.find_spec(module) is not None
    if function:
        assert hasattr(importlib.import_module(module), function)


def test_the_metastores_calls_pass_the_method_that_is_counted() -> None:
    from acid_platform.metastore.client.link import Link

    assert callable(Link._exchange)


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (("acid_platform.handles.table:update", "py4j.clientserver:send_command"), "PySpark"),
        (("acid_platform.handles.table:update",), PLANNING),
        (("acid_platform.formats.file_access:recorded_file", "threading:wait"), "footers"),
        (
            ("acid_platform.base.local_files:sync_paths", "concurrent.futures._base:result"),
            "syncing files",
        ),
        (("acid_platform.handles.table:update", "pyarrow.lib:read"), PLANNING),
    ],
)
def test_the_innermost_known_frame_of_python_counts(stack: tuple[str, ...], part: str) -> None:
    assert python_part(stack) == part


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (("java.lang.Thread:run", "org.apache.orc.impl.WriterImpl:addRowBatch"), "write"),
        (("org.apache.orc.impl.RecordReaderImpl:nextBatch", "java.util.zip.Inflater:x"), "scan"),
        (("org.apache.spark.sql.execution.SortExec:x", "GeneratedIterator:next"), "sort"),
        (("org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileWriter:w",), "write"),
        (("java.lang.Thread:run",), ROWS),
    ],
)
def test_the_innermost_known_frame_of_a_task_counts(stack: tuple[str, ...], part: str) -> None:
    assert jvm_part(stack) == part


def test_threads_are_known_by_the_start_of_their_names() -> None:
    assert thread_group("Executor task launch worker for task 3.0") == "tasks"
    assert thread_group("C2 CompilerThre") == "JIT compiler"
    assert thread_group("shutdown") == "other threads"


def test_overlapping_intervals_count_once() -> None:
    assert total([(3, 4), (0, 2), (1, 2.5)]) == 3.5


def test_a_moment_in_a_job_is_not_a_call_of_the_jvm() -> None:
    found = divided(0, 10, [(1, 3), (2, 4), (9, 12)], [(5, 6)], [(0.5, 4.5), (5.5, 7)])
    assert found == {"jobs": 4, "metastore": 1, "jvm": 2}


def test_samples_in_a_job_or_a_call_are_not_pythons_own() -> None:
    samples = [(float(at), (str(at),)) for at in range(8)]
    found = own(samples, [(5.5, 6.5), (0.5, 3.5), (1, 2)])
    assert [stack for (stack,) in found] == ["0", "4", "5", "7"]


def test_the_parts_add_up_to_the_wall_clock() -> None:
    profile = {
        "wall": [1.0, 2.0],
        "cores": 2,
        "parts": {
            "seconds in jvm": 0.3,
            "seconds in metastore": 0.1,
            "seconds in jobs": 0.7,
            "task seconds": 0.8,
        },
        "python": shares(
            {("acid_platform.handles.table:x",): 3, ("acid_platform.base.local_files:y",): 1}
        ),
    }
    parts = wall(profile)
    assert sum(parts.values()) == pytest.approx(1.5)
    assert parts["JVM calls without a job"] == pytest.approx(0.3)
    assert parts["jobs: tasks on all cores"] == pytest.approx(0.4)
    assert parts[PLANNING] == pytest.approx(0.3)
    assert parts["syncing files"] == pytest.approx(0.1)


def test_the_width_of_a_frame_is_its_share(tmp_path: Path) -> None:
    flame.write(tmp_path / "f.svg", "a < b", {"a;b": 3, "a;<c>": 1})
    root = ElementTree.parse(tmp_path / "f.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    widths = {
        group.findtext(f"{space}title"): float(group.find(f"{space}rect").get("width"))  # type: ignore
        for group in root.iter(f"{space}g")
    }
    assert widths == {"a: 100.0%": 1400, "b: 75.0%": 1050, "<c>: 25.0%": 350}


def test_the_callers_of_the_jvm_are_listed_by_their_seconds() -> None:
    profile = {
        "wall": [1.0],
        "executions": 1,
        "cores": 2,
        "cpu": {},
        "tasks": {},
        "python": {},
        "parts": {"seconds in jvm": 0.3, "seconds in metastore": 0.1, "seconds in jobs": 0.2},
        "callers": {"jvm": {"a:x": [3, 0.01], "b:y": [1, 0.2]}, "metastore": {}},
    }
    text = markdown(
        {
            "rows": 1,
            "date": "2026-11-23",
            "machine": {"cores": 2},
            "contenders": {"ours": {"versions": {}, "statements": {"update": profile}}},
        }
    )
    assert "ours, JVM calls by function: b:y 1 in 200 ms; a:x 3 in 10 ms." in text
    assert "| **wall clock** | 1000 |" in text
