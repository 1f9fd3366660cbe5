"""The app's processes: started again whenever they end, and killed, stopped and woken by order."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from random import Random

import httpx

from tests.soak.history import NEMESIS
from tests.soak.recording import Recorder

_ROOT = Path(__file__).parent.parent.parent
_PATIENCE = 60.0


class NeverReady(Exception):
    """The app doesn't start."""


class Slot:
    """One place for a process of the app; each process in it has a number of its own."""

    def __init__(self, fleet: Fleet, number: int, port: int) -> None:
        self._fleet = fleet
        self._number = number
        self._port = port
        self._generation = 0
        self._process: asyncio.subprocess.Process | None = None
        self._is_over = False
        self._was_told = False
        self.name = ""
        self.url = f"http://127.0.0.1:{port}"
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Keeps a process running until it's over."""
        while not self._is_over:
            self._generation += 1
            self.name = f"app{self._number}-{self._generation}"
            self._was_told = False
            with (self._fleet.folder / f"{self.name}.log").open("wb") as log:
                process = self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "uvicorn", "tests.soak.app:app", "--port", str(self._port)),
                    *("--log-level", "warning", "--timeout-graceful-shutdown", "3"),
                    cwd=_ROOT,
                    env={**os.environ, **self._fleet.environment, "SOAK_NAME": self.name},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a Ctrl-C is the soak's alone
                )
            asking = asyncio.create_task(self._until_ready())
            await process.wait()
            asking.cancel()
            self.ready.clear()
            self._fleet.forget(self.name)
            if not self._was_told:
                self._fleet.recorder.write("death", self.name)
                await asyncio.sleep(0.1)

    def order(self, what: str, number: signal.Signals) -> bool:
        """Writes down what is done to the process, and does it; answers whether it was there."""
        process = self._process
        if process is None or process.returncode is not None:
            return False
        self._was_told = True
        self._fleet.recorder.write(what, self.name)
        process.send_signal(number)
        return True

    def wake(self, name: str) -> None:
        """Lets the process of this name go on, if it's there still."""
        process = self._process
        if self.name == name and process is not None and process.returncode is None:
            process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        """Stops the process for good, as a supervisor does."""
        self._is_over = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        self.order("stop", signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _PATIENCE)
        except TimeoutError:
            self.order("death", signal.SIGKILL)  # it hasn't stopped: the checker is told

    def kill(self) -> None:
        """Ends the process for good, at once."""
        self._is_over = True
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()

    async def _until_ready(self) -> None:
        async with httpx.AsyncClient(timeout=5) as http:
            while True:
                try:
                    if (await http.get(f"{self.url}/ready")).json() == self.name:
                        self.ready.set()
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)


class Fleet:
    """All processes of the app on one database."""

    def __init__(self, folder: Path, url: str, count: int, hold: float, store: str, random: Random) -> None:
        self.folder = folder
        self.recorder = Recorder(folder, NEMESIS)
        self.environment = {
            "SOAK_FOLDER": str(folder),
            "SOAK_URL": url,
            "SOAK_HOLD": str(hold),
            "SOAK_STORE": store,
            "PYTHONUNBUFFERED": "1",
        }
        self._hold = hold
        self._random = random
        self._waking: dict[str, asyncio.Task[None]] = {}
        self.freezes = 0
        """How many times a process was seen to have stopped itself."""
        self.slots = [Slot(self, number, port) for number, port in enumerate(_free_ports(count), 1)]
        self._next = 0

    def pick(self) -> str:
        """The address of a process that serves and isn't frozen, each in turn; of any where none does."""
        frozen = self.frozen()
        serving = [
            slot for slot in self.slots if slot.ready.is_set() and slot.name not in frozen
        ] or self.slots
        self._next += 1
        return serving[self._next % len(serving)].url

    async def ready(self) -> None:
        """Returns once all serve."""
        for slot in self.slots:
            try:
                await asyncio.wait_for(slot.ready.wait(), _PATIENCE)
            except TimeoutError:
                log = self.folder / f"{slot.name}.log"
                raise NeverReady(
                    f"{slot.name} doesn't serve; it said, in {log}:\n{log.read_text()}"
                ) from None

    async def wake_the_frozen(self) -> None:
        """Wakes each process that has stopped itself, soon after the holds of its jobs are over."""
        while True:
            for file in self.folder.glob("frozen-*"):
                name = file.name.removeprefix("frozen-")
                if name not in self._waking:
                    self.freezes += 1
                    self._waking[name] = asyncio.create_task(self._wake(name))
            await asyncio.sleep(0.02)

    async def _wake(self, name: str) -> None:
        await asyncio.sleep(self._hold + self._random.uniform(0.1, 0.5))
        self.forget(name)
        for slot in self.slots:
            slot.wake(name)

    def forget(self, name: str) -> None:
        """Takes away the sign that this process is frozen: it's woken, or it has ended."""
        (self.folder / f"frozen-{name}").unlink(missing_ok=True)
        waking = self._waking.pop(name, None)
        if waking is not None and waking is not asyncio.current_task():
            waking.cancel()

    def frozen(self) -> set[str]:
        """The names of the processes that have stopped themselves and are not woken yet."""
        return {file.name.removeprefix("frozen-") for file in self.folder.glob("frozen-*")}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
