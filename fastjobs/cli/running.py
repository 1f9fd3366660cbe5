"""`fastjobs run app:q`: the workers of a queue, without a web server."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from fastjobs.cli.exit import Exit, at_the_very_end
from fastjobs.cli.hosting import App, LifespanFailed, lifespan_of
from fastjobs.cli.mistake import Mistake
from fastjobs.cli.parsing import Commands, add_app, add_queue, target_typed, whole_number
from fastjobs.core.errors import FastjobsError, QueueError, RegistrationError
from fastjobs.core.text import error_text
from fastjobs.runtime.kinds import chosen
from fastjobs.runtime.lines import say, say_error
from fastjobs.runtime.living import not_run_here
from fastjobs.runtime.queue import Queue
from fastjobs.runtime.settings import LET_GO

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def add(commands: Commands) -> None:
    """Adds `run` to the command's words."""
    parser = commands.add_parser(
        "run",
        help="run the jobs of a queue, without a web server",
        description="Runs the jobs of a queue until SIGTERM or Ctrl-C, then stops in order within the queue's grace"
        " and a second; a second signal ends it at once. Exits with 0 after a stop, 1 after a failure, and 2 where it"
        " can't begin.",
    )
    add_queue(parser)
    parser.add_argument(
        "--workers",
        type=whole_number(1, 10_000),
        metavar="N",
        help="how many jobs run at once, in place of the queue's",
    )
    parser.add_argument(
        "--kinds",
        metavar="NAMES",
        help="run the jobs of these kinds alone, as in mail,report; jobs of the others are left to whoever runs them",
    )
    add_app(parser)
    parser.set_defaults(order=_order)


def _order(typed: argparse.Namespace) -> int:
    process: list[Process] = []
    at_the_very_end(lambda: process[0].exit if process else None)  # before the app registers its own
    target = target_typed(typed, typed.queue)
    named, queue, app = target.named, target.queue, target.app
    if not queue.kinds and not queue.has_fallback:
        raise Mistake(f"{named} has no kinds: is the module imported that registers them?")
    kinds = None if typed.kinds is None else [each.strip() for each in typed.kinds.split(",") if each.strip()]
    try:
        chosen(queue.kinds, kinds)
    except RegistrationError as wrong:
        raise Mistake(f"{named}: {wrong}") from None
    workers: int = queue.workers if typed.workers is None else typed.workers
    if not workers:
        raise Mistake(f"{named} only pushes, with workers=0: how many run here? --workers 8")
    if app is None:
        try:
            _ = queue.store
        except QueueError:
            raise Mistake(
                f"{named} has no store yet; if its app gives it one as it starts: --app module:app"
            ) from None
    # The app's own logging is left as it is: one handler anywhere that gets the queue's lines says that it has some.
    if not logging.getLogger("fastjobs").hasHandlers():
        logging.basicConfig(level=logging.INFO, format=FORMAT, stream=sys.stderr)
    process.append(Process(named, queue, workers, kinds, app))
    return process[0].run()


class Process:
    """One `fastjobs run`."""

    def __init__(
        self, named: str, queue: Queue, workers: int, kinds: Sequence[str] | None, app: App | None
    ) -> None:
        self._named = named
        self._queue = queue
        self._workers = workers
        self._kinds = kinds
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._serving: asyncio.Task[None] | None = None
        self._crash: BaseException | None = None
        self.exit = Exit(self._stop, queue.grace + LET_GO)

    def run(self) -> int:
        """Runs until it's told to stop, and answers the exit code. On the main thread, and once in a process."""
        asyncio.set_event_loop(self._loop)
        self._serving = self._loop.create_task(self._serve())
        self.exit.watch()
        code = self._until_stopped(self._serving)
        # From here on nothing may keep the process for longer than a stop may take.
        self.exit.stopped(code)
        _close(self._loop)
        return code

    def _until_stopped(self, serving: asyncio.Task[None]) -> int:
        try:
            self._loop.run_until_complete(serving)
        except asyncio.CancelledError:
            if self._crash is None:
                say(logging.INFO, "stopped", queue=self._named)
                return 0
        except (FastjobsError, LifespanFailed) as error:
            say(logging.CRITICAL, "it failed", error, queue=self._named, err=error_text(error))
            if error.__cause__ is not None:
                logging.getLogger("fastjobs").critical("as the app raised", exc_info=error.__cause__)
        except BaseException as error:  # SystemExit too, which a handler's own code may let out of the loop
            say_error("it failed", error, logging.CRITICAL, queue=self._named)
            logging.getLogger("fastjobs").critical("where it was", exc_info=error)
        return 1

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            if self._app is not None:
                with not_run_here(self._queue):
                    hosted = lifespan_of(self._app)
                    await stack.enter_async_context(hosted)
            running = self._queue.running(on_crash=self._crashed, workers=self._workers, kinds=self._kinds)
            await stack.enter_async_context(running)
            kinds = ", ".join(sorted(chosen(self._queue.kinds, self._kinds)))
            if self._queue.has_fallback and self._kinds is None:
                kinds = f"{kinds}, and all others" if kinds else "all"
            say(logging.INFO, "running", queue=self._named, workers=self._workers, kinds=kinds)
            await asyncio.Event().wait()

    def _stop(self) -> None:
        def cancel() -> None:
            serving = self._serving
            if serving is not None and not serving.done():
                health = self._queue.health()
                grace = f"{self._queue.grace:g}s"
                say(logging.INFO, "stopping", queue=self._named, running=health.busy, grace=grace)
                serving.cancel()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(cancel)

    def _crashed(self, error: BaseException) -> None:
        """A bug of the queue's own, which is logged: a supervisor starts the process again."""
        self._crash = self._crash or error
        self.exit.begin()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """As asyncio.run does: ends the tasks that are left, and its threads. `Exit` ends what doesn't let itself."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    asyncio.set_event_loop(None)
    loop.close()
