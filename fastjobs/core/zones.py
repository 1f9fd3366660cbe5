"""Time zones: found by name, and asked which offsets a clock's time has and where a change is.

The one place in `core` that reads something: the zone database, and for "Local" the variable TZ and where
/etc/localtime leads to. It does so as a schedule is made, never as one is asked for its next run.
"""

from __future__ import annotations

import difflib
import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from fastjobs.core.errors import ScheduleError

_SECOND = timedelta(seconds=1)
# Not zones: another count of seconds, or whatever this machine has in a file.
_NO_ZONES = ("right/", "posix/", "localtime", "posixrules")


def load(zone: str | ZoneInfo) -> ZoneInfo:
    """The zone of this IANA name, or the server's own for "Local". Raises ScheduleError where there is none."""
    if isinstance(zone, ZoneInfo):
        if zone.key is None:
            raise ScheduleError(
                "a ZoneInfo read from a file without a key names no zone, so other instances couldn't find"
                ' it: give the name, as "Europe/Paris"',
                part="zone",
            )
        return load(zone.key) if zone.key.startswith(_NO_ZONES) else zone
    if not isinstance(zone, str):
        raise ScheduleError(
            f'zone is an IANA name such as "Europe/Paris", a ZoneInfo, or "Local", not a'
            f" {type(zone).__name__}: {zone!r}",
            part="zone",
        )
    return _named(local_name() if zone == "Local" else zone, 'zone "Local"' if zone == "Local" else "zone")


def _named(name: str, what: str) -> ZoneInfo:
    try:
        if not name.startswith(_NO_ZONES):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such file; a path out of the database; a folder
        pass
    lower = {each.lower(): each for each in available_timezones() if not each.startswith(_NO_ZONES)}
    close = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.75)
    near = [lower[each] for each in (close[:1] if name.lower() in lower else close)]
    meant = f". Did you mean {' or '.join(near)}?" if near else ', such as "Europe/Paris" or "UTC"'
    raise ScheduleError(
        f"{what}: there is no zone {name!r} in this machine's zone database, which has IANA names{meant}",
        text=name,
        part="zone",
    )


def local_name(localtime: str = "/etc/localtime") -> str:
    """The IANA name of the server's zone: what TZ says, else where /etc/localtime leads to.

    Raises ScheduleError where neither names a zone: the file is a copy, TZ is a rule such as `CET-1CEST`.
    """
    said = os.environ.get("TZ")
    if said is not None:
        path = said.removeprefix(":")
        if not path:
            return "UTC"  # as POSIX has it for one that is set and empty
        if not path.startswith("/") or _below_zoneinfo(path):
            return _below_zoneinfo(path) or path
        localtime = path
    if os.path.islink(localtime):
        name = _below_zoneinfo(os.path.realpath(localtime)) or _below_zoneinfo(os.readlink(localtime))
        if name:
            return name
    found = "is no link to a zone's file" if os.path.exists(localtime) else "isn't there"
    raise ScheduleError(
        f'zone "Local": the server\'s zone has no name here, as TZ names none and {localtime} {found}.'
        ' Write the zone, as in Cron("0 2 * * *", "Europe/Paris"), or set TZ=Europe/Paris',
        text="Local",
        part="zone",
    )


def _below_zoneinfo(path: str) -> str:
    _, found, name = path.rpartition("/zoneinfo/")
    return name if found else ""


def offsets(zone: ZoneInfo, wall: datetime) -> tuple[timedelta, timedelta]:
    """The zone's offsets at a time that a clock shows: that of its first showing, and that of its second.

    Equal for a time that is shown once. The first is greater for one shown twice, as the clock goes back;
    the second is greater for one that is skipped, and then they are those before and after the change.
    """
    first = wall.replace(tzinfo=zone, fold=0).utcoffset()
    second = wall.replace(tzinfo=zone, fold=1).utcoffset()
    assert first is not None
    assert second is not None
    return first, second


def change_at(zone: ZoneInfo, wall: datetime) -> datetime:
    """The instant of the change that shows this time twice or skips it, in UTC."""
    wall = wall.replace(microsecond=0)  # no change is between seconds
    first, second = offsets(zone, wall)
    # It's after the time at the greater offset, and at the lesser one at the latest, whichever way the clock goes.
    low, high = wall - max(first, second), wall - min(first, second)
    old = _offset_at(zone, low)
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        if _offset_at(zone, middle) == old:
            low = middle
        else:
            high = middle
    return high.replace(tzinfo=UTC)


def _offset_at(zone: ZoneInfo, utc: datetime) -> timedelta:
    found = utc.replace(tzinfo=UTC).astimezone(zone).utcoffset()
    assert found is not None
    return found
