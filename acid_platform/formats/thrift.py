"""The compact protocol of Thrift, in which Parquet writes its footers and the headers of pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acid_platform.base.file_bounds import MOST_PARTS

Shape = Mapping[int, Any]
"""The fields of a struct that are kept, each with the shape of the structs in it; None: a number.
"""
_TRUE, _FALSE, _INTEGERS, _TEXT, _LIST, _SET, _MAP, _STRUCT = 1, 2, (4, 5, 6), 8, 9, 10, 11, 12
_DEEPEST, _LONGEST_NUMBER = 20, 10
_MOST_VALUES = 64 * MOST_PARTS
"""Values in lists of one message, and its fields."""


class ThriftBytes:
    """A struct in the bytes of a message. Raises IndexError where they end before it does, and
    ValueError for what no writer writes."""

    def __init__(self, content: bytes, at: int = 0) -> None:
        self._content, self.at = content, at
        self._left = _MOST_VALUES

    def number(self) -> int:
        content, at, value = self._content, self.at, 0
        if (first := content[at]) < 128:
            self.at = at + 1
            return first
        for shift in range(0, 7 * _LONGEST_NUMBER, 7):
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                self.at = at
                return value
        raise ValueError("a number is longer than any")

    def _signed(self, kind: int) -> int:
        value = self.number()
        value = value >> 1 ^ -(value & 1)
        most = 1 << (63 if kind == 6 else 31)
        if not -most <= value < most:
            raise ValueError("a number is larger than its type")
        return value

    def take(self, length: int) -> bytes:
        taken = self._content[self.at : self.at + length]
        self.at += length
        if len(taken) < length:
            raise IndexError("it ends within its values")
        return taken

    def struct(self, shape: Shape, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        read, seen, number = dict[int, Any](), set[int](), 0
        while (head := self._content[self.at]) != 0:
            self.at += 1
            number = number + (head >> 4) if head > 15 else self._signed(4)
            if number in seen:
                raise ValueError(f"field {number} occurs twice")
            seen.add(number)
            kind = head & 15
            if number not in shape:
                self._skip(kind, depth)
            elif (inner := shape[number]) is None:
                if kind in (_TRUE, _FALSE):
                    read[number] = int(kind == _TRUE)
                elif kind in _INTEGERS:
                    value = self._content[self.at]
                    if value > 127:
                        value = self._signed(kind)
                    else:  # most have one byte, and files have tens of thousands
                        self.at += 1
                        value = value >> 1 ^ -(value & 1)
                    read[number] = value
                else:
                    raise ValueError(f"field {number} is no number")
            elif kind == _STRUCT:
                read[number] = self.struct(inner, depth + 1)
            elif kind == _LIST:
                length, kind = self._list()
                if kind != _STRUCT:
                    raise ValueError(f"field {number} lists no structs")
                read[number] = [self.struct(inner, depth + 1) for _ in range(self._few(length))]
            else:
                raise ValueError(f"field {number} is no struct")
        self.at += 1
        self._few(len(seen))
        return read

    def _few(self, length: int) -> int:
        self._left -= length
        if self._left < 0:
            raise ValueError(f"it has more than {_MOST_VALUES:,} values")
        return length

    def _list(self) -> tuple[int, int]:
        head = self._content[self.at]
        self.at += 1
        return self.number() if head > 239 else head >> 4, head & 15

    def _skip(self, kind: int, depth: int) -> None:
        if kind in (_TRUE, _FALSE):  # told by the kind
            return
        if kind in _INTEGERS:
            if self._content[self.at] > 127:
                self.number()
            else:
                self.at += 1
        elif kind == _TEXT:
            length = self.number()
            self.at += length
        elif kind == _STRUCT:
            if depth > _DEEPEST:
                raise ValueError("it is nested too deeply")
            while (head := self._content[self.at]) != 0:
                self.at += 1
                if head < 16:
                    self.number()
                self._skip(head & 15, depth + 1)
            self.at += 1
            self._few(1)
        elif kind in (3, 7):
            self.at += 1 if kind == 3 else 8
        elif depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        elif kind in (_LIST, _SET):
            length, kind = self._list()
            self._skip_all((kind,), length, depth)
        elif kind == _MAP:
            if length := self.number():
                kinds = self._content[self.at]
                self.at += 1
                self._skip_all((kinds >> 4, kinds & 15), length, depth)
        else:
            raise ValueError(f"no value has the type {kind}")
        if self.at > len(self._content):
            raise IndexError("it ends within a value")

    def _skip_all(self, kinds: tuple[int, ...], length: int, depth: int) -> None:
        for _ in range(self._few(length)):
            for kind in kinds:
                if kind in (_TRUE, _FALSE):
                    self.at += 1
                else:
                    self._skip(kind, depth + 1)
