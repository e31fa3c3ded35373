"""What a stranger's or a careless person's texts may do: nothing to a terminal, a log or a disk."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from acid_platform import Warehouse, errors
from acid_platform.base.location import Location
from acid_platform.base.logs import OneLine
from acid_platform.base.paths import parts_of_url, without_credentials
from acid_platform.cli.main import main
from acid_platform.display import show_table
from acid_platform.errors import visible
from acid_platform.formats.orc import open_strange_orc
from acid_platform.formats.orc.protobuf import (
    UnreadableMessage,
    delimited,
    number,
    packed,
    read_varint,
)
from acid_platform.formats.orc.tail import lz4_size
from acid_platform.gateway import logins
from acid_platform.layout.types import parse_type
from acid_platform.metastore import wire
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.log.contract import segment_name
from acid_platform.predicates.analysis import parsed
from acid_platform.storage.files import Files

UNSEEN = [chr(code) for code in (*range(32), *range(0x7F, 0xA0), 0x202E, 0x2066, 0x2028, 0xD800)]


def test_no_control_character_reaches_a_terminal() -> None:
    for char in UNSEEN:
        told = io.StringIO()
        Console(file=told, width=200).print(show_table([{"v": f"a{char}b"}], title=f"t{char}"))
        text = told.getvalue()
        assert char == "\n" or char not in text, repr(char)
        assert f"a{visible(char)}b" in text and char not in visible(char), repr(char)
        assert char not in str(errors.AcidError(f"x{char}")) or char in "\n\t", repr(char)


def test_the_end_of_a_very_long_error_is_left_out() -> None:
    """A name of some megabytes would fill a log, and searching it for secrets takes a second."""
    name = "x" * 100_000
    told = io.StringIO()
    handler = logging.StreamHandler(told)
    handler.setFormatter(OneLine("%(message)s"))
    for error in (errors.NoSuchTable(name), KeyError(name)):
        try:
            raise error
        except Exception as raised:
            record = logging.makeLogRecord({"msg": name, "exc_info": (type(raised), raised, None)})
            handler.handle(record)
    assert str(errors.NoSuchTable(name)) == "x" * 16_000 + "… (84,000 characters more)"
    for before in range(15_500, 16_100, 7):  # its end decides whether it is a password
        text = "x" * before + "s3://me:" + "9876" * 50 + "@bucket/t?sig=" + "9876" * 5_000
        assert "9876" not in str(errors.CorruptFile(text)), before
    lines = told.getvalue().splitlines()
    assert max(map(len, lines)) < 16_100 and all("characters more" in lines[n] for n in (0, -1))


@pytest.mark.more
def test_a_table_is_printed_without_its_escapes(tmp_path: Path) -> None:
    where = str(tmp_path / "wh")
    with Warehouse.open(where, engine="local") as warehouse:
        warehouse.create_table("db.t", "v string").insert([{"v": "\x1b]0;owned\x07\n| forged"}])
        done = CliRunner().invoke(
            main, ["sql", "SELECT v FROM db.t", "--warehouse", where, "--engine", "local"]
        )
        assert "\x1b" not in done.output and "\\x1b]0;owned\\x07\\n| forged" in done.output
        as_json = CliRunner().invoke(
            main, ["sql", "SELECT v FROM db.t", "--json", "--warehouse", where]
        )
        assert json.loads(as_json.output)[0]["v"] == "\x1b]0;owned\x07\n| forged"
        failed = CliRunner().invoke(main, ["sql", "SELECT '\x1b' FROM db.nosuch\x1b"])
        assert "\x1b" not in failed.output
        warehouse.metastore.stop()


def test_an_entry_of_a_log_is_one_line() -> None:
    told = io.StringIO()
    handler = logging.StreamHandler(told)
    handler.setFormatter(OneLine("%(asctime)s %(message)s"))
    log = logging.Logger("t")
    log.addHandler(handler)
    log.warning("%s", "x\n2026-01-01 forged\x1b[2J")
    try:
        raise ValueError("y\n2026-01-01 forged")
    except ValueError:
        log.exception("failed")
    lines = told.getvalue().splitlines()
    assert "\\n2026-01-01 forged\\x1b[2J" in lines[0]
    assert not [line for line in lines if line.startswith("2026-01-01 forged")]


GREETINGS = [
    b'{"acid":1,"proof":"\\ud800"}', b'{"acid": 1, "challenge": "x"}', b'{"acid": 1}', b"{}", b"",
    b'{"refused": "x\\u001b"}', b'{"refused": "' + b"x" * 201 + b'"}', b'{"refused": "\x1b"}',
    b'{"acid": ' + b"9" * 30 + b', "challenge": ""}', b"[" * 500, b'{"acid": 1, "challenge": "'
    + "é".encode() * 32 + b'"}', wire.greeting("A" * 64, "a" * 64), wire.greeting("a" * 63),
]  # fmt: skip


@pytest.mark.parametrize("payload", GREETINGS)
def test_only_the_expected_form_is_read_before_the_handshake(payload: bytes) -> None:
    with pytest.raises(wire.Malformed, match=r"^these bytes are not the greeting"):
        wire.read_greeting(payload)


def test_what_each_end_writes_is_read() -> None:
    own, other = wire.challenge(), wire.challenge()
    assert wire.read_greeting(wire.greeting(own)).challenge == own
    said = wire.read_greeting(wire.greeting(own, other, wire.STANDBY, 7))
    assert (said.protocol, said.proof, said.role, said.epoch) == (
        wire.PROTOCOL,
        other,
        wire.STANDBY,
        7,
    )
    assert said.proves(other) and not said.proves(own)
    assert wire.read_greeting(wire.refusal("protocol 1 is not 5")).refused
    assert wire.read_greeting(b'{"acid": 6, "other": []}').protocol == 6


@pytest.mark.parametrize(
    "text",
    [
        "postgres://h/db", "postgres://u:secret@h/db", "s3:/bucket/x", "s3:bucket", "file:wh",
        "file://host/wh", "http://h/x", "jdbc:postgresql://h/db", "S3://bucket", "tcp:/h:1", "x://",
        "s3://", "nfs://h/x", "dbfs:/x", "s3://u:secret@bucket/x", "/a/b://c",
    ],
)  # fmt: skip
def test_an_unknown_scheme_makes_no_directory(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for what in (lambda: Location.of(text, "m"), lambda: Location.of("wh", text)):
        with pytest.raises(errors.InvalidDefinition) as refused:
            what()
        assert "secret" not in str(refused.value)
    if not text.startswith("/"):
        with pytest.raises(errors.InvalidDefinition):
            Metastore.connect(text)
    assert not [*tmp_path.iterdir()]


def test_a_database_is_no_warehouse() -> None:
    with pytest.raises(errors.InvalidDefinition):
        Location.of("postgresql://h/db", "m")


def test_a_password_in_an_address_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACID_METASTORE_KEY", raising=False)
    for text in ("tcp://user:pw@ss@h:1", "tcp://user@h:1", "tcp://user:pw/x@h:1,user:pw@i:2"):
        with pytest.raises(errors.InvalidDefinition) as refused:
            Metastore.connect(text)
        assert "pw" not in str(refused.value) and "user@" not in str(refused.value)
    assert without_credentials("tcp://h:1") == "tcp://h:1"


def test_local_places_are_what_they_were(tmp_path: Path) -> None:
    assert Location.of(f"file://{tmp_path}").warehouse == str(tmp_path)
    assert Location.of(f"file:{tmp_path}").warehouse == str(tmp_path)
    assert Location.of("a:b").warehouse == os.path.abspath("a:b")
    assert Location.of("s3://bucket/wh/", "/m") == Location("s3://bucket/wh", "/m")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 5000, b'{"address": 1, "pid": "x"}']
)
def test_a_damaged_file_of_the_metastore_is_a_named_error(content: bytes, tmp_path: Path) -> None:
    home = Home(tmp_path / "wh" / "_metastore")
    home.prepare()
    home.endpoint.write_bytes(content)
    with pytest.raises(errors.MetastoreIncompatible, match=r"endpoint\.json is damaged"):
        Metastore.connect(home.path)
    home.endpoint.unlink()
    (home.path / "authkey").write_bytes(content[:10])
    with pytest.raises(errors.MetastoreRefused, match="authkey"):
        home.authkey()
    (tmp_path / "wh" / "_acid_warehouse.json").write_bytes(content)
    with pytest.raises(errors.WarehouseMismatch, match="identity"):
        Warehouse.open(str(tmp_path / "wh"))


@pytest.mark.more
def test_files_of_the_metastore_are_for_their_owner(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.umask(0)\n"
        "from acid_platform.metastore.client.metastore import Metastore\n"
        "with Metastore.connect(sys.argv[1]) as m: m.begin().commit(); m.stop()\n"
        "with Metastore.connect(sys.argv[1]) as m: m.begin().commit()"
    )
    home = tmp_path / "m"
    subprocess.run([sys.executable, "-c", code, str(home)], check=True)
    try:
        assert any(home.glob("snapshot-*.duckdb"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
        assert {segment_name(1), "server.log", "authkey"} <= {*modes}
        assert not {name: oct(mode) for name, mode in modes.items() if mode & 0o077}
    finally:
        with Metastore.connect(home) as metastore:
            metastore.stop()


def nested_orc(depth: int, circle: bool = False) -> bytes:
    """An ORC file without rows, whose only column has types in types."""
    types = delimited(4, number(1, 12) + packed(2, [1]) + delimited(3, b"c"))
    for level in range(depth):
        types += delimited(4, number(1, 10) + packed(2, [1 if circle else level + 2]))
    types += delimited(4, number(1, 3))
    footer = number(1, 3) + number(2, 3) + types + number(6, 0) + number(8, 0)
    script = number(1, len(footer)) + number(2, 0) + number(3, 1 << 18)
    script += packed(4, [0, 12]) + number(5, 0) + number(6, 9) + delimited(8000, b"ORC")
    return b"ORC" + footer + script + bytes([len(script)])


@pytest.mark.parametrize(("depth", "circle"), [(101, False), (20_000, False), (3, True)])
def test_types_that_would_crash_arrow_are_refused_before_it_sees_them(
    tmp_path: Path, depth: int, circle: bool
) -> None:
    where = tmp_path / "wh" / "t"
    where.mkdir(parents=True)
    (where / "file").write_bytes(nested_orc(depth, circle))
    files, path = Files.of(str(where / "file"))
    with pytest.raises(errors.CorruptFile, match=r"nested deeper|has the part"):
        open_strange_orc(files, path)
    (where / "file").write_bytes(nested_orc(50))
    assert open_strange_orc(files, path).nrows == 0


def test_footers_of_every_codec_are_looked_into(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import orc

    table = pa.table({f"c{place}": [*range(2000)] for place in range(40)})
    for codec in ("uncompressed", "zlib", "snappy", "lz4", "zstd"):
        orc.write_table(table, str(tmp_path / codec), compression=codec, stripe_size=20_000)
        files, path = Files.of(str(tmp_path / codec))
        assert open_strange_orc(files, path).nrows == 2000
    for text in (b"", b"a" * 1000, os.urandom(3000), b"ab" * 300 + os.urandom(40)):
        assert lz4_size(bytes(pa.Codec("lz4_raw").compress(text))) == len(text)


def test_a_number_of_a_footer_that_does_not_end_is_refused_at_once() -> None:
    began = time.process_time()
    with pytest.raises(UnreadableMessage, match="more than 64 bits"):
        read_varint(b"\xff" * 10_000_000, 0)
    assert time.process_time() - began < 1 and read_varint(b"\xff" * 9 + b"\1", 0)[1] == 10


DEEP: list[tuple[Any, str]] = [
    (parse_type, "array<" * 5000 + "int" + ">" * 5000),
    (parsed, "(" * 5000 + "a" + ")" * 5000),
    (parsed, "NOT " * 5000 + "a"),
    (parsed, "a = 1" + " OR a = 1" * 5000),
    (parsed, "a = " + "+".join("1" * 3000)),
    (parsed, "abs(" * 5000 + "a" + ")" * 5000),
    (parsed, "CASE WHEN a THEN " * 500 + "b" + " END" * 500),
]


@pytest.mark.more
@pytest.mark.parametrize(("read", "text"), DEEP)
def test_a_text_that_is_nested_deeply_is_a_named_error(read: Any, text: str) -> None:
    with pytest.raises(errors.AcidError, match="nested"):
        read(text)
    assert parsed("a = 1" + " OR a = 1" * 400)


def _cheap(password: str, cost: int) -> str:
    salt = b"0123456789abcdef"
    hashed = hashlib.scrypt(password.encode(), salt=salt, n=cost, r=8, p=1, dklen=32)
    return str(logins.Secret(cost, 8, 1, salt, hashed))


def test_a_weak_hash_lets_nobody_in() -> None:
    with pytest.raises(errors.InvalidDefinition, match="weaker than scrypt"):
        logins.parse(f"ann:{_cheap('pw', 1 << 13)}", "users")


@pytest.mark.more
def test_a_hash_of_a_lower_cost_is_replaced_at_the_login(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"# people\nbob:{_cheap('b', 1 << 14)}\nann:{_cheap('a', 1 << 14)}\n")
    path.chmod(0o640)
    known = logins.Users(str(path))
    assert not known.verify("ann", "b") and known.secrets()["ann"].outdated
    assert known.verify("ann", "a")
    ann, bob = (known.secrets()[name] for name in ("ann", "bob"))
    assert (ann.cost, bob.cost) == (1 << 17, 1 << 14) and ann.salt == bob.salt
    assert known.verify("ann", "a") and not known.verify("ann", "b")
    assert path.read_text().startswith("# people\n") and path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["users"]


@pytest.mark.more
def test_a_hash_that_cannot_be_replaced_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "users"
    path.write_text(f"ann:{_cheap('a', 1 << 14)}\n")

    def full(_descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(logins, "sync_data", full)
    assert logins.Users(str(path)).verify("ann", "a")
    assert "$16384$" in path.read_text() and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    "name", ["sig", "X-Amz-Signature", "X-Goog-Credential", "access_token", "password", "secret"]
)
def test_no_error_shows_what_signs_an_address(name: str) -> None:
    address = f"abfss://c@a.dfs.core.windows.net/x?{name}=a%2F9876&version=1"
    said = str(errors.InvalidDefinition(f"{address}: and '{address}'"))
    assert "9876" not in said and said.count("version=1") == 2 and f"{name}=***" in said
    assert len(str(errors.CorruptFile("?sig" * 100_000))) < 16_100  # in no time
    said = str(
        errors.ImportRefused("delta s3://AKIA:9876@bucket/wh can't be read: 's3://A:9876@b'")
    )
    assert "9876" not in said and "s3://AKIA:***@bucket/wh" in said
    assert "12:30@b" in str(errors.CorruptFile("thrift://host:9083 at 12:30@b"))
    assert str(errors.CorruptFile("a = ? AND key = 'x'")) == "a = ? AND key = 'x'"


SIGNS = ["/", "#", "?", "@", ":", "[", "]", "%zz", "\\", " ", "//", "@/", "#@", "é", "\x00"]


@pytest.mark.parametrize("address", ["postgresql://{}@host:5432/db", "postgres://{}@host/db?x=1"])
def test_no_error_shows_the_password_of_an_address(address: str) -> None:
    from acid_platform.handles.import_sources import PostgresSource
    from acid_platform.metastore.log.contract import open_log

    secrets = [
        written
        for sign in SIGNS
        for written in (f"user:se{sign}cret", f"us{sign}er:secret", f"{sign}cret")
    ]
    for written in secrets:
        url, refused = address.format(written), False
        for door in (open_log, parts_of_url, lambda url: PostgresSource(url, "t")):
            try:
                if door in (open_log, parts_of_url) or refused:  # else it would look for the host
                    door(url)
            except errors.AcidError as error:
                assert "cret" not in str(error)
                refused = door is parts_of_url
