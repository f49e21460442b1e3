# SPDX-License-Identifier: MIT
"""What running units on other machines have written: asked once a second, in one message for all.

A node that keeps that waiting is asked by itself, until it has answered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import (
    Any,
    Awaitable,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
)

from . import NodeSide
from .Fleet import Member

log = logging.getLogger("TensileParallel")

WATCH_SECONDS = 1.0
# More devices than these are asked for news less often, so that it costs no more.
POLLED_DEVICES = 32
# A node that takes longer to answer is asked by itself, so that it holds up no other.
SLOW_SECONDS = 3.0

Ask = Callable[[Mapping[str, NodeSide.Question]], Awaitable[Dict[str, Any]]]


class Connected:
    """A worker that has joined, as long as it is there."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.gone = asyncio.Event()
        self.follower: "Optional[Follower]" = None

    @property
    def address(self) -> str:
        return self.member.address


class Follower(Protocol):
    """Who asks a worker for news once a second (NodeWorker.NodeWorker)."""

    def question(self) -> NodeSide.Question:
        """What to ask."""

    def answered(self, answer: NodeSide.Answer) -> None:
        """Takes the answer."""


class News:
    """Asks all that are followed. Everything runs in the cluster's loop."""

    def __init__(self, connected: Callable[[], List[Connected]], ask: Ask) -> None:
        """Prepares.

        Args:
            connected: who is there now.
            ask: takes questions by workers' addresses; their answers, or what went wrong.
        """
        self._connected = connected
        self._ask = ask
        self._slow: Dict[str, "asyncio.Future[bool]"] = {}
        self._asking: "Optional[asyncio.Future[None]]" = None

    def begin(self) -> None:
        """Asks from now on."""
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._pollAll())

    def stop(self) -> None:
        """Asks no more."""
        for task in [self._asking, *self._slow.values()]:
            if task is not None:
                task.cancel()

    def _followed(self) -> List[Connected]:
        return [each for each in self._connected() if each.follower is not None]

    async def _pollAll(self) -> None:
        """All are asked by one message; those of a node that keeps it waiting, by their own."""
        more = False
        while True:
            pause = WATCH_SECONDS * max(1.0, len(self._followed()) / POLLED_DEVICES)
            await asyncio.sleep(0.05 if more else pause)
            for node in [node for node, task in self._slow.items() if task.done()]:
                del self._slow[node]
            asked = [each for each in self._followed() if each.member.node not in self._slow]
            # A task of its own: where the connection ends, Dask may cancel what waits for it.
            polling = asyncio.ensure_future(self._poll(asked))
            await asyncio.wait({polling}, timeout=SLOW_SECONDS)
            more = polling.done() and _outcome(polling)
            if not polling.done():
                polling.cancel()
                for node in {each.member.node for each in asked}:
                    own = [each for each in asked if each.member.node == node]
                    self._slow[node] = asyncio.ensure_future(self._poll(own))
                    self._slow[node].add_done_callback(_outcome)

    async def _poll(self, asked: Sequence[Connected]) -> bool:
        if not asked:
            return False
        followers = {each.address: each.follower for each in asked}
        questions = {a: f.question() for a, f in followers.items() if f is not None}
        answers = await self._ask(questions)
        more = False
        for address, answer in answers.items():
            follower = followers.get(address)
            if isinstance(answer, NodeSide.Answer) and follower is not None:
                follower.answered(answer)
                more = more or answer.more
        return more


def _outcome(polling: "asyncio.Future[bool]") -> bool:
    """Whether there is more; what went wrong is only noted: they are asked again."""
    error = None if polling.cancelled() else polling.exception()
    if error is not None:
        log.debug("nodes did not answer: %r", error)
    return not (polling.cancelled() or error) and polling.result()
