"""A process of `fastjobs run` under test: what it logs, how it's told to stop, and how long it takes to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 30.0


class Process:
    """One process, whose working folder has the app."""

    def __init__(self, folder: Path, *words: str, module: str = "fastjobs", **environment: str) -> None:
        self._log = folder / f"{time.monotonic_ns()}.log"
        self.told_at = 0.0
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def until(self, text: str) -> None:
        """Returns once the text is in its log."""
        end = time.monotonic() + PATIENCE
        while text not in self.log:
            assert self.popen.poll() is None, f"it has ended with {self.popen.returncode}:\n{self.log}"
            assert time.monotonic() < end, f"no {text!r} in its log:\n{self.log}"
            time.sleep(0.01)

    def tell(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self.told_at = self.told_at or time.monotonic()
        self.popen.send_signal(number)

    def ends(self) -> tuple[int, float]:
        """Its exit code, and how many seconds it took from the first signal on."""
        try:
            code = self.popen.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it doesn't end:\n{self.log}") from None
        return code, time.monotonic() - self.told_at

    def kill(self) -> None:
        """Ends it, and all that it started, whatever it's at."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
