"""The sets of keys that ROLLUP, CUBE and GROUPING SETS mean."""

from __future__ import annotations

from itertools import chain, combinations

from sqlglot import exp

from acid_platform.errors import NeedsSpark

WORDS: dict[str, type[exp.Expr]] = {
    "rollup": exp.Rollup,
    "cube": exp.Cube,
    "grouping_sets": exp.GroupingSets,
}
"""By the name of the part of a GROUP BY that has it behind its keys."""


def grouping_sets(group: exp.Group) -> list[list[exp.Expr]] | None:
    """The keys of each set, all keys in their order before them; None for a plain GROUP BY.

    Raises NeedsSpark for several of the words, or for one beside other keys.
    """
    words = tuple(WORDS.values())
    before: list[exp.Expr] = [node for node in group.expressions if isinstance(node, words)]
    behind: list[exp.Expr] = [node for word in WORDS for node in group.args.get(word) or ()]
    if not before and not behind:
        return None
    if len(before + behind) > 1 or (before and len(group.expressions) > 1):
        raise NeedsSpark(f"{group.sql('spark').strip()} of several parts")
    [word] = before + behind
    given = [_keys(part) for part in word.expressions or group.expressions]
    keys = group.expressions if behind and word.expressions else [*chain(*given)]
    counts = range(len(given), -1, -1)
    if isinstance(word, exp.Rollup):
        given = [[*chain(*given[:count])] for count in counts]
    elif isinstance(word, exp.Cube):
        given = [[*chain(*some)] for count in counts for some in combinations(given, count)]
    return [keys, *given]


def _keys(part: exp.Expr) -> list[exp.Expr]:
    part = part.unnest()
    return [*part.expressions] if isinstance(part, exp.Tuple) else [part]
