"""A trace as lines of text: who called whom, when, for how long, and what failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from examples.tracing.receiver import Received

_WIDE = 32
"""How many columns the time has."""
_NAMES = 46


def waterfall(spans: Sequence[Received]) -> str:
    """The spans of one trace, each under its parent."""
    if not spans:
        return "no spans\n"
    begin = min(each.began for each in spans)
    whole = max(max(each.ended for each in spans) - begin, 1e-9)
    rows = [_row(each, lead, begin, whole) for each, lead in _tree(spans)]
    seconds = f"{whole:.2f} s"
    head = f"trace {spans[0].trace_id}, {len(spans)} spans, {seconds}"
    return "\n".join([head, *rows]) + "\n"


def _tree(spans: Sequence[Received]) -> Iterator[tuple[Received, str]]:
    """Each span with the lines that lead to it; one whose parent isn't here stands at the top."""
    ids = {each.span_id for each in spans}
    under: dict[str, list[Received]] = {}
    for each in sorted(spans, key=lambda each: each.began):
        under.setdefault(each.parent_id if each.parent_id in ids else "", []).append(each)

    def below(parent: str, lead: str) -> Iterator[tuple[Received, str]]:
        children = under.get(parent, [])
        for each in children:
            last = each is children[-1]
            yield each, lead + ("└─ " if last else "├─ ")
            yield from below(each.span_id, lead + ("   " if last else "│  "))

    for top in under.get("", []):
        yield top, ""
        yield from below(top.span_id, "")


def _row(span: Received, lead: str, begin: float, whole: float) -> str:
    name = (lead + span.name)[:_NAMES]
    at = min(int((span.began - begin) / whole * _WIDE), _WIDE - 1)
    until = max(at + 1, round((span.ended - begin) / whole * _WIDE))
    bar = " " * at + "▇" * (until - at)
    took = f"{(span.ended - span.began) * 1000:.0f} ms"
    return f"{name:<{_NAMES}}|{bar:<{_WIDE}}| {took:>8}  {span.service:<7} {_said(span)}".rstrip()


def _said(span: Received) -> str:
    said: list[str] = []
    attempt, outcome = span.attributes.get("fastjobs.attempt"), span.attributes.get("fastjobs.outcome")
    if attempt is not None:
        said.append(f"attempt {attempt}")
    if outcome is not None:
        said.append(str(outcome))
    if span.failed:
        said.append(f"error: {span.status}" if span.status else "error")
    return ", ".join(said)
