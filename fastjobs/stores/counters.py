"""A throttle's places in memory: each is a slot, and when it was taken last."""

from __future__ import annotations

from collections.abc import Sequence

from fastjobs.core.rate import RESERVED
from fastjobs.store import Places, Throttled


class Counters:
    """The places of all throttles. Its store's lock is held at each call."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
        """By throttle and slot: the time it counts from, and the time from which on it says nothing."""

    def take(self, asked: Sequence[Throttled], now: int) -> list[Places]:
        """See `fastjobs.store.ThrottleStore.take`."""
        return [self._take(each, now) for each in asked]

    def _take(self, asked: Throttled, now: int) -> Places:
        key = (asked.name, asked.key)
        taken = self._taken.get(key, {})
        # Slots past `most` count too: they're of an instance whose throttle has more, as in a rolling deploy.
        counting = {slot: at for slot, (at, _) in taken.items() if at + asked.per > now}
        room = min(asked.wanted, asked.most - len(counting))
        slots = tuple(slot for slot in range(asked.most) if slot not in counting)[: max(0, room)]
        until = now + RESERVED
        if slots:
            here = self._taken.setdefault(key, {})
            here |= dict.fromkeys(slots, (until, until + asked.per))
        wait = 0
        if len(slots) < asked.wanted:
            # A place that isn't settled yet may turn out to be of a start that is now.
            starts = [min(at, now) for at in counting.values()] or [now]
            wait = max(1, min(starts) + asked.per - now)
        return Places(asked.name, asked.key, slots, until, wait)

    def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        """See `fastjobs.store.ThrottleStore.settle`."""
        for places, count, at in started:
            here = self._taken.get((places.name, places.key), {})
            for place, slot in enumerate(places.slots):
                reserved, free_at = here.get(slot, (0, 0))
                if reserved != places.until:
                    continue
                if place < count:
                    here[slot] = (at, free_at - reserved + at)
                else:
                    del here[slot]
            if not here:
                self._taken.pop((places.name, places.key), None)

    def prune(self, now: int, limit: int) -> int:
        """Forgets up to so many slots that say nothing any more; answers how many."""
        count = 0
        for key, here in list(self._taken.items()):
            for slot in [slot for slot, (_, free_at) in here.items() if free_at <= now][: limit - count]:
                del here[slot]
                count += 1
            if not here:
                del self._taken[key]
        return count
