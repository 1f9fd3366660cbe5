"""How a contestant is run: `python -m MODULE NAME COUNT URL` prints what it found, one line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

from tests.benchmarks.metered import Found

Contestant = Callable[[str, int], Awaitable[Found]]


def main(*contestants: Contestant) -> None:
    """Runs the one that the command names."""
    name, count, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    named = {each.__name__: each for each in contestants}

    async def measured() -> Found:
        return await named[name](url, count)

    print(json.dumps(asyncio.run(measured())), flush=True)
