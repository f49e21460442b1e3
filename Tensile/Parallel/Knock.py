# SPDX-License-Identifier: MIT
"""Whether a scheduler is there at all: cheaper than Dask's client or worker, which try it again
after pauses that double."""

from __future__ import annotations

import asyncio

from .Certificates import TLS, contextOf
from .Place import hostAndPort


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
    host, port = hostAndPort(address)
    context = contextOf(role) if address.startswith(TLS) else None
    name = host if context is not None else None
    opening = asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    _, writer = await asyncio.wait_for(opening, seconds)
    writer.close()
