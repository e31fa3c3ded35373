"""The base class of operations: the message, the type of its answer, and how it is treated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypedDict, TypeVar, dataclass_transform, get_args

from acid_platform.errors import UnsupportedStatement
from acid_platform.metastore.codec import Convert, JsonObject, converters, decode, per_class

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
Row = dict[str, Any]
"""A row of a listing for people: SHOW, `status`."""
Values = list[list[Any]]
"""The rows of a query's result."""


class Answer(TypedDict, total=False):
    """An answer as JSON: a `value`, an `error` (class and text), or in `ask` the advice to ask
    again."""

    value: JsonObject
    error: list[str]
    ask: str
    transient: bool


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class MetastoreOperation(Generic[A_co]):
    """A message to the metastore, with its arguments as fields and the type of its answer.

    A subclass becomes a frozen dataclass. A handler for it must exist in the rules (rules.machine)
    or in the server (server.group_commit, server.server).

    `op` is its name in messages and in kept outcomes, `answers` the JSON key of the answer, unless
    the answer is a record of several fields. `outcome` is the record that is kept of the answer if
    each answer is rebuilt from the state. `repeatable`: sending it again does no harm; the outcome
    of every other operation is kept (P3).
    """

    op: ClassVar[str]
    answers: ClassVar[str]
    outcome: ClassVar[type | None]
    repeatable: ClassVar[bool]
    reads: ClassVar[bool] = False

    def __init_subclass__(
        cls,
        *,
        op: str = "",
        answers: str = "",
        outcome: type | None = None,
        repeatable: bool = False,
    ) -> None:
        dataclass(frozen=True)(cls)
        if op:
            cls.op, cls.answers, cls.outcome = op, answers, outcome
            cls.repeatable = repeatable or cls.reads
            OPERATIONS[op] = cls

    @property
    def patience(self) -> float:
        """How many seconds it may wait in the metastore: its field `wait`, if it has one."""
        return float(getattr(self, "wait", None) or 0)


class Unrecorded(MetastoreOperation[A_co]):
    """An operation that records nothing: it is repeatable, and is answered between two rounds."""

    reads = True


OPERATIONS: dict[str, type[MetastoreOperation[Any]]] = {}
"""All operations by their names."""


def read_operation(op: str, args: JsonObject) -> MetastoreOperation[Any]:
    """Raises UnsupportedStatement for an unknown name, and whatever `codec.decode` raises."""
    kind = OPERATIONS.get(op)
    if kind is None:
        raise UnsupportedStatement(f"the metastore has no operation {op!r}")
    return decode(kind, args)


def answer_type(kind: type[MetastoreOperation[Any]]) -> Any:
    return get_args(kind.__orig_bases__[0])[0]  # type: ignore[attr-defined]


def write_answer(kind: type[MetastoreOperation[A]], answer: A) -> JsonObject:
    written: JsonObject = _converters_of(kind)[0](answer)
    return written


def read_answer(kind: type[MetastoreOperation[A]], value: JsonObject) -> A:
    answer: A = _converters_of(kind)[1](value)
    return answer


@per_class
def _converters_of(kind: type[MetastoreOperation[Any]]) -> tuple[Convert, Convert]:
    hint = answer_type(kind)
    if hint is type(None):
        return lambda _answer: {}, lambda _value: None
    write, read = converters(hint)
    key = kind.answers
    if not key:
        return write, read
    return lambda answer: {key: write(answer)}, lambda value: read(value[key])
