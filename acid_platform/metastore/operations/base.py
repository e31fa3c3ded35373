"""The base class of operations: the message, the type of its answer, and how it is treated."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypedDict, TypeVar, get_args

from acid_platform.errors import UnsupportedStatement
from acid_platform.metastore.codec import Convert, JsonObject, converters, decode, encode
from acid_platform.metastore.records import LockRequest

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


class MetastoreOperation(Generic[A_co]):
    """A message to the metastore, with its arguments as fields and the type of its answer.

    A subclass is a frozen dataclass with slots. A handler for it must exist in the rules
    (rules.machine) or in the server (server.file_operations, server.server).
    """

    __slots__ = ()

    op: ClassVar[str]
    """Its name in messages and in kept outcomes."""
    answers: ClassVar[str] = ""
    """The JSON key of the answer, unless the answer is a record of several fields."""
    kept: ClassVar[type | None] = None
    """The record that is kept as outcome if each answer is rebuilt from the state."""
    reads: ClassVar[bool] = False
    """It records nothing, so it is answered between two rounds. This makes it repeatable."""
    repeatable: ClassVar[bool] = False
    """Sending it again does no harm. The outcome of every other operation is kept (P3)."""

    def __init_subclass__(cls) -> None:
        if "op" in vars(cls):
            cls.repeatable = cls.repeatable or cls.reads
            OPERATIONS[cls.op] = cls

    @property
    def patience(self) -> float:
        """How many seconds it may wait in the metastore."""
        return 0.0


class Locking(MetastoreOperation[A_co]):
    """An operation that requests locks and may have to wait for them."""

    __slots__ = ()

    locks: tuple[LockRequest, ...]
    wait: float

    @property
    def patience(self) -> float:
        return float(self.wait or 0)


OPERATIONS: dict[str, type[MetastoreOperation[Any]]] = {}
"""All operations by their names."""


def arguments(operation: MetastoreOperation[Any]) -> JsonObject:
    return encode(operation)


def read_operation(op: str, args: JsonObject) -> MetastoreOperation[Any]:
    """Raises UnsupportedStatement for an unknown name, and whatever `codec.decode` raises."""
    kind = OPERATIONS.get(op)
    if kind is None:
        raise UnsupportedStatement(f"the metastore has no operation {op!r}")
    return decode(kind, args)


def answer_type(kind: type[MetastoreOperation[Any]]) -> Any:
    """The annotation of the answer."""
    return get_args(kind.__orig_bases__[0])[0]  # type: ignore[attr-defined]


def write_answer(kind: type[MetastoreOperation[A]], answer: A) -> JsonObject:
    written: JsonObject = _answer(kind)[0](answer)
    return written


def read_answer(kind: type[MetastoreOperation[A]], value: JsonObject) -> A:
    answer: A = _answer(kind)[1](value)
    return answer


_converters: dict[type[MetastoreOperation[Any]], tuple[Convert, Convert]] = {}


def _answer(kind: type[MetastoreOperation[Any]]) -> tuple[Convert, Convert]:
    known = _converters.get(kind)
    if known is None:
        known = _converters[kind] = _answer_converters(kind)
    return known


def _answer_converters(kind: type[MetastoreOperation[Any]]) -> tuple[Convert, Convert]:
    hint = answer_type(kind)
    if hint is type(None):
        return lambda _answer: {}, lambda _value: None
    write, read = converters(hint)
    key = kind.answers
    if not key:
        return write, read
    return lambda answer: {key: write(answer)}, lambda value: read(value[key])
