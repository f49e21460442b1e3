# SPDX-License-Identifier: MIT
"""What a join asks the workers of a cluster: its own, and those of others that have its name."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Dict, Mapping, Sequence

from .NodeSide import facts

# Another join is one that answers, and again after so long: one that was killed is dead by then.
CERTAIN_SECONDS = 3.0
_ANSWER_SECONDS = 2.0
# How long a worker may take to be reached, in seconds: it may be gone.
WORKER_SECONDS = 5.0


async def callWorker(address: str, security: Any, function: Callable[[], Any]) -> Any:
    """Has a worker call a function of NodeSide."""
    from distributed.core import clean_exception, rpc
    from distributed.protocol.pickle import dumps

    async with rpc(address, timeout=WORKER_SECONDS, connection_args=security) as worker:
        answer = await worker.run(function=dumps(function), args=dumps(()), kwargs=dumps({}))
    if answer["status"] == "error":
        raise clean_exception(**answer)[1]
    return answer["result"]


async def otherJoin(scheduler: str, spec: Mapping[str, Any], security: Any) -> str:
    """The address of another join of this node's name; empty where none is certain to be there.

    The scheduler may still have the workers of one that was killed: these do not answer. A run
    refuses what is not noticed here.

    Args:
        scheduler: its address.
        spec: has this join's node and join.
        security: Dask's arguments for connections.
    """
    first = await _answering(scheduler, spec, security)
    if not first:
        return ""
    await asyncio.sleep(CERTAIN_SECONDS)
    still = await _answering(scheduler, spec, security)
    return next((still[join] for join in sorted(first) if join in still), "")


async def _answering(scheduler: str, spec: Mapping[str, Any], security: Any) -> Dict[str, str]:
    """Other joins of this node's name that answer now, with the address of a worker of each."""
    from distributed.core import rpc

    async def joinOf(address: str) -> str:
        found = await callWorker(address, security, facts)
        own = found["node"] == spec["node"] and not found["leaving"]
        return found["join"] if own else ""

    async def ask() -> "Sequence[str]":
        async with rpc(scheduler, connection_args=security) as asked:
            known = (await asked.identity())["workers"]
        prefix = spec["node"] + "/"
        return [address for address in known if str(known[address]["name"]).startswith(prefix)]

    try:
        addresses = await asyncio.wait_for(ask(), _ANSWER_SECONDS)
    except Exception:  # what is wrong with the scheduler is told when the device joins
        return {}
    asked = [asyncio.wait_for(joinOf(address), _ANSWER_SECONDS) for address in addresses]
    answers = zip(await asyncio.gather(*asked, return_exceptions=True), addresses)
    own = ("", spec["join"])
    return {join: at for join, at in answers if isinstance(join, str) and join not in own}
