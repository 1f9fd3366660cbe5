"""`fastjobs kinds app:q`: how many jobs of each kind there are; `fastjobs pause` and `resume` a kind."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fastjobs.cli import telling
from fastjobs.cli.asking import ask
from fastjobs.cli.mistake import Mistake, Unnamed
from fastjobs.cli.parsing import EXITS, QUEUE, Commands, add_app, add_queue, kind_typed, target_typed
from fastjobs.cli.printing import harmless, out, out_json
from fastjobs.cli.target import Target, names_something
from fastjobs.cli.telling import number_of, short
from fastjobs.runtime.looking import KindInfo
from fastjobs.runtime.queue import Queue

_KINDS = (
    "Tells of each kind how many of its jobs wait, how many of these are due and for how long, how many are held (they"
    " run) or parked (they wait for another of their value, one at a time), and how many have failed for good; and"
    " whether it's paused, held back by its limiter, or has no handler in this queue. No number is counted past"
    f" {telling.CAP:,}. It writes nothing, and is cheap. {EXITS}"
)
_PAUSE = (
    "Pauses a kind on all instances of the app: no job of it starts, those that run go on, and pushes are kept. It"
    f" stays paused, through restarts and deploys, until it's resumed. {EXITS}"
)
_RESUME = f"Has a paused kind's jobs start again, on all instances of the app. {EXITS}"
_HEADS = ("kind", "waiting", "due", "oldest", "held", "parked", "failed")


def add(commands: Commands) -> None:
    """Adds `kinds`, `pause` and `resume` to the command's words."""
    kinds = commands.add_parser("kinds", help="count the jobs of each kind", description=_KINDS)
    add_queue(kinds)
    kinds.add_argument("--json", action="store_true", help="a line of JSON for each kind")
    add_app(kinds)
    kinds.set_defaults(order=_order)
    for word, paused, about in (("pause", True, _PAUSE), ("resume", False, _RESUME)):
        does = (
            "start no more jobs of a kind, on all instances" if paused else "start a paused kind's jobs again"
        )
        parser = commands.add_parser(
            word, help=does, usage=f"fastjobs {word} [queue] kind [option ...]", description=about
        )
        parser.take_words("[queue] kind", f"the queue as {QUEUE}. Then the kind")
        parser.add_argument("--json", action="store_true", help="say it as JSON")
        add_app(parser)
        parser.set_defaults(order=_pausing, word=word, paused=paused)


def _order(typed: argparse.Namespace) -> int:
    target = target_typed(typed, typed.queue)

    async def tell(queue: Queue) -> int:
        kinds = await queue.counts(cap=telling.CAP)
        if typed.json:
            for kind in kinds:
                out_json(telling.kind_json(kind))
        else:
            out(_table(target, kinds))
        return 0

    return ask(target, tell)


def _table(target: Target, kinds: Sequence[KindInfo]) -> str:
    if not kinds:
        return f"{target.named} has no kinds, and no job was ever pushed\n"
    rows = [_HEADS, *(_row(kind) for kind in kinds)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEADS))]
    notes = ["", *(_note(kind) for kind in kinds)]
    lines: list[str] = []
    for row, note in zip(rows, notes, strict=True):
        name, *numbers = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([name.strip().ljust(widths[0]), *numbers, note]).rstrip())
    return "\n".join(lines) + "\n"


def _row(kind: KindInfo) -> tuple[str, ...]:
    numbers = (kind.held, kind.parked, kind.failed)
    oldest = "-" if kind.oldest is None else short(kind.oldest)
    return (
        harmless(kind.kind),
        number_of(kind.waiting),
        number_of(kind.due),
        oldest,
        *map(number_of, numbers),
    )


def _note(kind: KindInfo) -> str:
    notes = ["paused"] if kind.paused else []
    if kind.held_back > 0:
        notes.append(f"held back for {short(kind.held_back)}")
    if not kind.handled:
        waits = kind.waiting or kind.parked
        notes.append(
            "no handler of it here: its jobs wait for an instance that has one"
            if waits
            else "no handler here"
        )
    return ", ".join(notes)


def _pausing(typed: argparse.Namespace) -> int:
    words: list[str] = typed.words
    if not 1 <= len(words) <= 2:
        raise Mistake(f"{typed.word} takes one kind, as in: fastjobs {typed.word} app:q mail")
    name = kind_typed(words[-1])
    try:
        target = target_typed(typed, words[0] if len(words) == 2 else None)
    except Unnamed:
        if names_something(
            name
        ):  # a kind's name may have a colon, too, so it's asked once no queue was named
            raise Mistake(f"which kind? It comes last, as in: fastjobs {typed.word} {name} mail") from None
        raise
    paused: bool = typed.paused

    async def pause(queue: Queue) -> int:
        await (queue.pause(name) if paused else queue.resume(name))
        if typed.json:
            out_json({"kind": name, "paused": paused})
        elif paused:
            out(
                f"{harmless(name)} is paused on all instances: nothing of it starts, what runs goes on, and pushes are"
                f" kept.\nHave it start again by: fastjobs resume {target.named} {harmless(name)}\n"
            )
        else:
            out(f"{harmless(name)} is paused no more: what is due starts, as each instance finds it.\n")
        return 0

    return ask(target, pause)
