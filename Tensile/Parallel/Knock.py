# SPDX-License-Identifier: MIT
"""Whether a scheduler is there at all: cheaper than Dask's client or worker, which try it again
after pauses that double. And whether it has TLS."""

from __future__ import annotations

import asyncio
import ssl
from typing import Optional

from .Certificates import TLS, contextOf
from .Place import hostAndPort

# How long it may take to find out whether TLS is spoken, in seconds.
TLS_SECONDS = 5.0
_FOREIGN = "its certificate and ours are not of one authority (docs/cluster.md, Who gets in)"
_NAME_IT = "name it as tls://… (docs/cluster.md, Who gets in)"


async def knock(address: str, role: str, seconds: float) -> None:
    """Connects, with TLS where it is a scheduler with TLS, and no more.

    Args:
        address: the scheduler's.
        role: whose certificate is shown, as Dask names it: "worker" or "client".
        seconds: how long it may take.

    Raises:
        ssl.SSLError: somebody is there, who or whom TLS does not let in.
        OSError, asyncio.TimeoutError: nobody listens there.
    """
    context = contextOf(role) if address.startswith(TLS) else None
    await asyncio.wait_for(_connect(address, context), seconds)


async def aboutTls(address: str, why: str) -> str:
    """What to do where TLS stands in the way, which no other try would mend; else empty.

    The scheduler may have it and be named without, or have to be named with it; or its certificate
    and ours are strangers.

    Args:
        address: as it was named; may be empty.
        why: what went wrong.
    """
    if not address:  # no file tells it yet
        return ""
    if address.startswith(TLS):
        isForeign = "CERTIFICATE" in why or "ALERT" in why  # of OpenSSL's words
        return _FOREIGN if isForeign else ""
    if "encryption required" in why:
        return "Dask's configuration here asks for TLS (require-encryption): " + _NAME_IT
    return "it is one with TLS: " + _NAME_IT if await _speaksTls(address) else ""


async def _speaksTls(address: str) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent to it
    try:
        await asyncio.wait_for(_connect(address, context), TLS_SECONDS)
        return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # in TLS it says that it misses a certificate
    except (OSError, asyncio.TimeoutError):
        return False


async def _connect(address: str, context: "Optional[ssl.SSLContext]") -> None:
    host, port = hostAndPort(address)
    name = host if context is not None else None
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    writer.close()
