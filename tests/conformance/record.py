"""Writes what the statements of files answer into them: `python -m tests.conformance.record FILE`.

The local engine answers, or Spark what only that one runs. Read what changed before you commit it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from acid_platform.errors import AcidError
from tests.conformance.configurations import Configuration
from tests.conformance.slt import Rows, parsed, recorded
from tests.conftest import temporary_warehouse


def record(path: Path, configuration: Configuration) -> None:
    text = path.read_text()
    answers: dict[int, Rows] = {}
    for case in parsed(path.name, text):
        with configuration.session(case) as (run, _):
            for step in case.records:
                try:
                    answer = run(step.sql)
                except AcidError as error:
                    if step.error is None:
                        print(f"{path.name}:{step.line}: {type(error).__name__}: {error}")
                    continue
                if step.rows is not None and isinstance(answer, list):
                    answers[step.line] = answer
                elif step.count not in (None, answer) or step.error is not None:
                    print(f"{path.name}:{step.line}: answered {answer}")
    path.write_text(recorded(text, answers))


if __name__ == "__main__":
    engine = "spark" if "--spark" in sys.argv else "local"
    with (
        tempfile.TemporaryDirectory() as directory,
        temporary_warehouse(Path(directory) / "wh", engine=engine) as warehouse,
    ):
        configuration = Configuration(engine, warehouse)
        for name in sys.argv[1:]:
            if name != "--spark":
                record(Path(name), configuration)
