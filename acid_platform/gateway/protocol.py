"""Decodes calls and encodes answers with thriftpy2, from the interface in hive_metastore.thrift."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from acid_platform.errors import UnsupportedStatement

_IDL = Path(__file__).with_name("hive_metastore.thrift")
_NAME = re.compile(rb"\w{1,100}", re.ASCII)
_REPLY, _EXCEPTION, _ONEWAY = 2, 3, 4
UNKNOWN_METHOD, INTERNAL_ERROR, PROTOCOL_ERROR = 1, 6, 7


@cache
def load() -> Any:
    """The module with the protocol's structs, exceptions and service.

    Raises UnsupportedStatement if the package of the extra `gateway` is not installed.
    """
    try:
        import thriftpy2
    except ImportError as error:
        raise UnsupportedStatement(
            "the gateway needs the package thriftpy2: pip install 'acid-platform[gateway]'"
        ) from error
    return thriftpy2.load(str(_IDL), module_name="acid_hive_metastore_thrift")


def known_calls() -> frozenset[str]:
    """The calls that the interface declares."""
    return frozenset(load().ThriftHiveMetastore.thrift_services)


class Undecodable(Exception):
    """The message is well-formed, but its fields have other types than the call's, or a text is not
    UTF-8."""


@dataclass
class Call:
    """A decoded call: its name, sequence number and arguments in the order of their numbers.

    A client that sends a `oneway` call reads no answer.
    """

    name: str
    sequence: int
    arguments: list[Any]
    oneway: bool = False

    @classmethod
    def decode(cls, payload: bytes) -> Call:
        """Decodes a message that `framing` has let through.

        The arguments of a call that the interface does not have stay undecoded. Raises Undecodable.
        """
        from thriftpy2.protocol.binary import TBinaryProtocol
        from thriftpy2.transport import TMemoryBuffer

        # Else a text that is not UTF-8 stays bytes, which nobody expects.
        protocol = TBinaryProtocol(TMemoryBuffer(payload), strict_decode=True)
        try:
            name, kind, sequence = protocol.read_message_begin()
            if name not in known_calls():
                return cls(str(name), sequence, [], kind == _ONEWAY)
            arguments = getattr(load().ThriftHiveMetastore, f"{name}_args")()
            arguments.read(protocol)
        except Exception as error:  # whatever a decoder raises for unexpected bytes
            raise Undecodable(f"{type(error).__name__}: {error}") from error
        spec = arguments.thrift_spec
        values = [getattr(arguments, spec[number][1]) for number in sorted(spec)]
        return cls(name, sequence, values)

    @classmethod
    def named(cls, payload: bytes) -> Call | None:
        """The call without its arguments, which a stranger sent; None if it has no proper name."""
        kind, size = struct.unpack_from("!xxxBi", payload)
        name, end = payload[8 : 8 + size], 8 + size
        if not _NAME.fullmatch(name) or len(payload) < end + 4:
            return None
        (sequence,) = struct.unpack_from("!i", payload, end)
        return cls(name.decode(), sequence, [], kind == _ONEWAY)

    # --- answers --------------------------------------------------------------------------------

    def answer(self, value: Any) -> bytes:
        result = self._result()
        if value is not None:
            result.success = value
        return self._written(_REPLY, result)

    def declared(self) -> Mapping[str, str]:
        """The exceptions that the call may answer with: the field of each, by its class name."""
        spec = self._result().thrift_spec
        return {spec[number][2].__name__: spec[number][1] for number in spec if number}

    def raised(self, field: str, kind: str, message: str) -> bytes:
        """Answers with a declared exception."""
        result = self._result()
        setattr(result, field, getattr(load(), kind)(message=message))
        return self._written(_REPLY, result)

    def failed(self, message: str, kind: int = INTERNAL_ERROR) -> bytes:
        """Answers that the call failed in a way that its declaration does not foresee."""
        from thriftpy2.thrift import TApplicationException

        return self._written(_EXCEPTION, TApplicationException(kind, message))

    def _result(self) -> Any:
        return getattr(load().ThriftHiveMetastore, f"{self.name}_result")()

    def _written(self, kind: int, body: Any) -> bytes:
        from thriftpy2.protocol.binary import TBinaryProtocol
        from thriftpy2.transport import TMemoryBuffer

        buffer = TMemoryBuffer()
        protocol = TBinaryProtocol(buffer)
        protocol.write_message_begin(self.name, kind, self.sequence)
        body.write(protocol)
        protocol.write_message_end()
        return bytes(buffer.getvalue())
