"""The queue's log lines: a sentence, then fields, always on one line.

    a job failed, and will run again kind=welcome-mail job=6 attempt=1 at=2026-10-01T12:29:47.319Z err="…" request_id=…

No value of a job is ever logged. What comes from outside is escaped, so that it can't break a line or move a
terminal. A traceback goes with the line only at DEBUG, as its text is anyone's, and with a bug of
fastjobs' own.
"""

from __future__ import annotations

import logging
import re

from fastjobs.core.duration import moment
from fastjobs.core.text import LOGGED, error_place, error_text, one_line

log = logging.getLogger("fastjobs")

_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime"}
"""What a record has of its own, and refuses to be given."""
_BARE = re.compile(r"[A-Za-z0-9._:@/+=,-]+\Z", re.ASCII)


def field(name: str, value: object) -> str:
    """`name=value`, quoted where it isn't a plain word."""
    text = str(value)
    if _BARE.match(text) and len(text) <= LOGGED:
        return f"{name}={text}"
    quoted = text[: LOGGED * 2].replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{one_line(quoted)}"'


def say(level: int, sentence: str, error: BaseException | None = None, /, **fields: object) -> None:
    """Logs one line; a field that is None is left out. The record has the fields too, for JSON."""
    if not log.isEnabledFor(level):
        return
    fields = {name: value for name, value in fields.items() if value is not None}
    told = [field(name, value) for name, value in fields.items()]
    traceback = error if error is not None and log.isEnabledFor(logging.DEBUG) else None
    extra = {name: _plain(value) for name, value in fields.items() if name not in _RECORD}
    log.log(level, " ".join((sentence, *told)), exc_info=traceback, stacklevel=2, extra=extra)


def _plain(value: object) -> object:
    """A number as it is, all else as text on one line."""
    return value if isinstance(value, (int, float)) else one_line(str(value))


def say_error(sentence: str, error: BaseException, level: int = logging.ERROR, /, **fields: object) -> None:
    """Logs one line with the error and where it was raised."""
    say(level, sentence, error, **fields, err=error_text(error), where=error_place(error) or None)


def at(unix_micros: int) -> str:
    """An instant as the log has it: UTC, to the millisecond."""
    return moment(unix_micros).isoformat(timespec="milliseconds").replace("+00:00", "Z")
