"""Short names for directories, so that a test reads like a row of a table.

`b5` base_0000005 · `b5v20` base_0000005_v0000020 · `d3` delta_0000003_0000003_0000 · `d3.1`
statement 1 · `d1-3v12` delta_0000001_0000003_v0000012 · `D…` delete_delta · `o` 000000_0. Other
words stand for themselves; `{a,b}` makes two words. `b5:compacted` has that `dataFormat`.
"""

from __future__ import annotations

import re

from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.layout.names import VERSION_FILE
from acid_platform.transactions import NONE_OPEN, ValidTxnList, ValidWriteIdList

TABLE = "db.t"
_SHORT = re.compile(
    r"(?:b(?P<base>\d+)|(?P<kind>[dD])(?P<low>\d+)(?:-(?P<high>\d+))?"
    r"(?:\.(?P<statement>\d+))?)(?:v(?P<visibility>\d+))?"
)
_BRACES = re.compile(r"(.*)\{(.*)\}(.*)")


def names(text: str) -> list[str]:
    """Directory and file names of a row, in its order."""
    return [_name(word.partition(":")[0]) for word in _words(text)]


def _words(text: str) -> list[str]:
    found: list[str] = []
    for word in text.split():
        match = _BRACES.fullmatch(word)
        middles = match[2].split(",") if match else [""]
        found += [f"{match[1]}{middle}{match[3]}" if match else word for middle in middles]
    return found


def _name(word: str) -> str:
    if word == "o":
        return "000000_0"
    match = _SHORT.fullmatch(word)
    if not match:
        return word
    suffix = f"_v{int(match['visibility']):07d}" if match["visibility"] else ""
    if match["base"]:
        return f"base_{int(match['base']):07d}{suffix}"
    prefix = "delete_delta" if match["kind"] == "D" else "delta"
    low = int(match["low"])
    if match["high"]:
        return f"{prefix}_{low:07d}_{int(match['high']):07d}{suffix}"
    return f"{prefix}_{low:07d}_{low:07d}_{int(match['statement'] or 0):04d}{suffix}"


def listing(text: str, size: int = 100) -> EntityListing:
    """Directories with one bucket file each; a word that starts with a digit is a file."""
    files: list[FileEntry] = []
    directories: list[str] = []
    formats: dict[str, str] = {}
    for word in _words(text):
        plain, _, data_format = word.partition(":")
        name = _name(plain)
        if data_format:
            formats[name] = data_format
        if name[0].isdigit():
            files.append(FileEntry(name, size))
        else:
            directories.append(name)
            files.append(FileEntry(f"{name}/{VERSION_FILE}", 1))
            files.append(FileEntry(f"{name}/bucket_00000", size))
    return EntityListing(f"warehouse/{TABLE}", tuple(files), tuple(directories), formats)


def write_ids(text: str) -> ValidWriteIdList:
    """`hwm:minOpen:open:aborted`; M = none open, `1..10` a range."""
    high_watermark, least, opened, aborted = (text + ":::").split(":")[:4]
    min_open = NONE_OPEN if least == "M" else int(least)
    return ValidWriteIdList(int(high_watermark), _ids(opened), _ids(aborted), min_open, TABLE)


def _ids(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        low, dots, high = part.partition("..")
        if part:
            found += range(int(low), int(high if dots else low) + 1)
    return tuple(found)


def txns(text: str = "") -> ValidTxnList:
    """`20 open`, `20 aborted` or nothing: all others up to 2000 are committed."""
    opened = [int(number) for number in re.findall(r"(\d+) open", text)]
    aborted = [int(number) for number in re.findall(r"(\d+) aborted", text)]
    return ValidTxnList.of(2000, opened, aborted)
