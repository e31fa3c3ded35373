"""A server at the addresses of Google's, for Hadoop's connector, which knows no others.

Options of Java name a proxy for what is encrypted. For a host of Google's, the proxy answers with a
certificate that this JVM trusts, and passes the requests on to the server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from werkzeug.serving import make_ssl_devcert

DOMAIN = "googleapis.com"
HOST = f"storage.{DOMAIN}"
CREDENTIALS = {
    "type": "authorized_user",
    "client_id": "tests",
    "client_secret": "tests",
    "refresh_token": "tests",
}
"""As `gcloud auth application-default login` leaves them. The connector fails without any."""


@contextmanager
def java_options(url: str, directory: Path) -> Iterator[str]:
    """Options of a JVM for which the server at `url` is Google's while the block runs."""
    certificate, key = make_ssl_devcert(str(directory / "google"), host=DOMAIN)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="as-google", daemon=True).start()
    started = asyncio.run_coroutine_threadsafe(_started(url, context), loop).result(20)
    options = {
        "https.proxyHost": "127.0.0.1",
        "https.proxyPort": started.sockets[0].getsockname()[1],
        "javax.net.ssl.trustStore": _trusting(certificate, directory),
        "javax.net.ssl.trustStorePassword": _PASSWORD,
    }
    try:
        yield " ".join(f"-D{name}={value}" for name, value in options.items())
    finally:
        loop.call_soon_threadsafe(loop.stop)


_PASSWORD = "changeit"
"""That of Java's own certificates."""


def _trusting(certificate: str, directory: Path) -> Path:
    """Java's certificates and one more: packages are fetched with the former."""
    java, store = Path(os.environ["JAVA_HOME"]), directory / "trusted"
    shutil.copyfile(java / "lib" / "security" / "cacerts", store)
    what = ["-importcert", "-noprompt", "-alias", DOMAIN, "-file", certificate]
    where = ["-keystore", str(store), "-storepass", _PASSWORD]
    subprocess.run([java / "bin" / "keytool", *what, *where], check=True, capture_output=True)
    return store


async def _started(url: str, context: ssl.SSLContext) -> asyncio.Server:
    server = urlsplit(url)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        host, _, port = asked.rpartition(":")
        ours = host.endswith(f".{DOMAIN}")
        place = (server.hostname, server.port) if ours else (host, int(port))
        there, answers = await asyncio.open_connection(*place)
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        if ours:
            await writer.start_tls(context)
        await asyncio.gather(_passed_on(reader, answers), _passed_on(there, writer))

    return await asyncio.start_server(connected, "127.0.0.1", 0)


async def _passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # one side has closed it
    finally:
        writer.close()
