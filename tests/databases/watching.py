"""Runs one server and watches over it: when the process that asked for it is gone, the server and its folder go too.

Run as a script of its own, with what to run in JSON as its argument. It prints the server's process id. Then each
line that it is told names a signal for the server; the end of its input means that nobody is there any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading


def main() -> None:
    asked = json.loads(sys.argv[1])
    # The server is in a session of its own: a Ctrl-C in the terminal is for the tests, which then end it.
    with open(asked["log"], "ab") as log:
        server = subprocess.Popen(
            asked["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=asked["folder"],
            env=asked["env"],
            start_new_session=True,
            **asked["user"],
        )
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.flush()
    left = threading.Event()

    def wait() -> None:
        code = server.wait()
        if left.is_set():
            shutil.rmtree(asked["folder"], ignore_errors=True)
        os._exit(0 if code == 0 else 1)

    waiter = threading.Thread(target=wait)
    waiter.start()
    for line in sys.stdin:
        server.send_signal(signal.Signals[line.strip()])
    left.set()
    server.send_signal(signal.SIGQUIT)
    waiter.join(timeout=10)
    with contextlib.suppress(ProcessLookupError):
        server.kill()
    waiter.join()


if __name__ == "__main__":
    main()
