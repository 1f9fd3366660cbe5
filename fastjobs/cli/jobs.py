"""`fastjobs jobs app:q`: the jobs that failed for good, or those that wait or run; `… retry 42` and the like."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from fastjobs.cli import acting, listing
from fastjobs.cli.asking import ask
from fastjobs.cli.mistake import Mistake
from fastjobs.cli.parsing import QUEUE, Commands, add_app, kind_typed, one_of, target_typed, whole_number
from fastjobs.cli.target import names_something
from fastjobs.core.request_id import plain

ACTIONS = ("retry", "show", "cancel", "delete")
_ABOUT = """\
Lists the jobs that failed for good and are kept, the latest first, each with
its value and its error; or acts on jobs. It may run beside the app at any time:
the app's queue finds what has changed.

  fastjobs jobs app:q                    what failed for good, the latest 100
  fastjobs jobs app:q --kind mail --all  all that failed of a kind
  fastjobs jobs app:q --request abc-1    those that the request of this ID pushed
  fastjobs jobs app:q --waiting mail     what waits of a kind, and why
  fastjobs jobs app:q --held mail        what runs of a kind
  fastjobs jobs app:q show 42            all that's known of a job, failed or not
  fastjobs jobs app:q retry 42 43        have failed jobs run again, from their
                                         first attempt
  fastjobs jobs app:q retry all          or retry --kind mail
  fastjobs jobs app:q cancel 42          remove a job that waits, or ask one that
                                         runs to stop
  fastjobs jobs app:q delete 42          delete failed jobs; or delete all, or
                                         delete --kind mail

Where FASTJOBS_QUEUE or pyproject.toml names the queue: fastjobs jobs retry 42.

Exits with 0 where it's done, 1 where there is no such job or it failed, and 2
for a mistake in the order."""


@dataclass(frozen=True)
class Which:
    """Which jobs an action is about: these, or all failed ones, or those of a kind."""

    ids: Sequence[str]
    kind: str | None
    all: bool


def add(commands: Commands) -> None:
    """Adds `jobs` to the command's words."""
    parser = commands.add_parser(
        "jobs",
        help="list failed jobs, run them again, look at one, cancel one",
        usage="fastjobs jobs [queue] [retry|show|cancel|delete [ID ...|all]] [option ...]",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.take_words(
        "[queue] [retry|show|cancel|delete ID…|all]", f"the queue as {QUEUE}. Then what to do with which"
    )
    parser.add_argument("--kind", metavar="KIND", help="failed jobs of this kind alone")
    parser.add_argument(
        "--request",
        metavar="ID",
        help="list the jobs alone that a request of this ID pushed, where CarryRequestID has carried it",
    )
    others = parser.add_mutually_exclusive_group()
    others.add_argument(
        "--waiting", metavar="KIND", help="list the jobs of this kind that wait, those due first"
    )
    others.add_argument("--held", metavar="KIND", help="list the jobs of this kind that run")
    many = parser.add_mutually_exclusive_group()
    many.add_argument(
        "--limit", type=whole_number(1), metavar="N", help=f"as many at most, {listing.LIMIT} by default"
    )
    many.add_argument("--all", action="store_true", help="list all, as many as there are")
    parser.add_argument("--whole", action="store_true", help="values whole, however long they are")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each job, its value whole")
    parser.add_argument(
        "--yes", action="store_true", help="delete without asking, as a terminal would be asked"
    )
    add_app(parser)
    parser.set_defaults(order=_order)


def _order(typed: argparse.Namespace) -> int:
    words: list[str] = typed.words
    if words and words[-1].isdecimal() and len(words) == 1 + names_something(words[0]):
        look = " ".join([*words[:-1], "show", words[-1]])
        raise Mistake(f"what is to become of job {words[-1]}? Look at it by: fastjobs jobs {look}")
    queue, action, rest = one_of(words, ACTIONS)
    for kind in (typed.kind, typed.waiting, typed.held):
        if kind is not None:
            kind_typed(kind)
    if typed.request is not None and not plain(typed.request):
        raise Mistake(f"--request is the ID of a request, as log lines say it: {typed.request!r:.80} is none")
    if action is None:
        if typed.kind is not None and (typed.waiting is not None or typed.held is not None):
            raise Mistake("--kind is for failed jobs: --waiting and --held name a kind themselves")
        return listing.order(target_typed(typed, queue), typed)
    if queue is None and rest and names_something(rest[0]):
        raise Mistake(f"the queue comes first, as in: fastjobs jobs {rest[0]} {action} …")
    _of_lists(typed, action)
    which = _which(
        action, rest, typed.kind, f"fastjobs jobs {queue} {action}" if queue else f"fastjobs jobs {action}"
    )
    target = target_typed(typed, queue)
    if action == "show":
        return ask(target, lambda queue: acting.show(queue, which.ids, as_json=typed.json))
    if action == "cancel":
        return ask(target, lambda queue: acting.cancel(queue, which.ids, as_json=typed.json))
    act = acting.Failed(target.named, which.ids, which.kind, as_json=typed.json)
    if action == "retry":
        return ask(target, act.retry)
    return ask(target, lambda queue: act.delete(queue, unasked=typed.yes))


def _of_lists(typed: argparse.Namespace, action: str) -> None:
    """A Mistake for an option that only a list has, or that this action has not."""
    given = {
        "--waiting": typed.waiting is not None,
        "--held": typed.held is not None,
        "--request": typed.request is not None,
        "--limit": typed.limit is not None,
        "--all": typed.all,
        "--whole": typed.whole,
        "--yes": typed.yes and action != "delete",
        "--kind": typed.kind is not None and action not in acting.OF_MANY,
    }
    for option, is_given in given.items():
        if is_given:
            instead = f": write {action} all" if option == "--all" and action in acting.OF_MANY else ""
            raise Mistake(f"{action} takes no {option}{instead}")


def _which(action: str, rest: Sequence[str], kind: str | None, typed: str) -> Which:
    ids = list(dict.fromkeys(rest))
    every = "all" in ids
    if action not in acting.OF_MANY:
        if not ids or every:
            raise Mistake(f"{action} takes the ids of jobs, as in: {typed} 42")
        return Which(ids, None, False)
    if every and len(ids) > 1:
        raise Mistake(f"{action} takes ids or all, not both: {' '.join(rest)}")
    if kind is not None and ids and not every:
        raise Mistake(f"{action} takes ids or --kind, not both: {' '.join(rest)} and {kind}")
    if not ids and kind is None:
        raise Mistake(f"{action} takes the ids of failed jobs, or all, or --kind, as in: {typed} 42")
    return Which([] if every else ids, kind, every or kind is not None)
