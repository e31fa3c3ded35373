"""Data Docs of Great Expectations as HTML: a folder of pages for each evaluation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from acid_platform.base.clock import wall_ms
from acid_platform.base.paths import user_path
from acid_platform.base.private_places import scratch_directory
from acid_platform.storage.files import Files, asking

PLACE = "ACID_DATA_DOCS"
"""A local folder or an URI such as s3://bucket/prefix."""
ADDRESS = "ACID_DATA_DOCS_URL"
"""Where a browser finds that place."""
_NAME = "evaluation"


@dataclass(frozen=True, slots=True)
class DocsSite:
    """Where the pages of one evaluation go."""

    place: str
    address: str
    """Its URL, or the place itself."""
    table: str

    @classmethod
    def of(cls, table: str, run_id: str) -> DocsSite | None:
        """None if no place is set."""
        named = os.environ.get(PLACE, "")
        if not named:
            return None
        place = user_path(named)
        name = f"{table}/{wall_ms()}-{run_id or os.getpid()}"
        address = os.environ.get(ADDRESS, "").rstrip("/") or place
        return cls(f"{place}/{name}", f"{address}/{name}", table)

    def write(self, context: Any) -> str:
        """Writes the pages of a context of Great Expectations with one validation result; returns
        where the page of that result is.

        Raises OSError, WarehouseNotWritable, StoreRefused, StoreUnavailable.
        """
        _escape_results(context.validation_results_store)
        with scratch_directory("docs") as folder:
            backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": folder}
            context.add_data_docs_site(
                _NAME,
                {
                    "class_name": "SiteBuilder",
                    "show_how_to_buttons": False,
                    "store_backend": backend,
                },
            )
            context.build_data_docs(site_names=[_NAME])
            # The images and fonts beside them are not on these pages.
            pages = [page.relative_to(folder) for page in Path(folder).rglob("*.html")]
            files, root = Files.of(self.place)
            for page in pages:
                path = f"{root}/{page.as_posix()}"
                files.make_directory(path.rpartition("/")[0])
                with (
                    asking(path),
                    files.system.open_output_stream(
                        path, metadata={"Content-Type": "text/html; charset=utf-8"}
                    ) as stream,
                ):
                    stream.write(Path(folder, page).read_bytes())
        own = next(page for page in pages if page.parts[0] == "validations")
        return f"{self.address}/{own.as_posix()}"


def _escape_results(store: Any) -> None:
    """Great Expectations would put values of rows into its pages as they are, as HTML (P67)."""
    for key in store.list_keys():
        validated = store.get(key)
        for each in validated.results:
            each.result = _escaped(each.result)
        store.set(key, validated)


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return escape(value, quote=False)
        case dict():
            return {name: _escaped(one) for name, one in value.items()}
        case list() | tuple():
            return [_escaped(one) for one in value]
    return value
