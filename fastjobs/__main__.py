"""`python -m fastjobs` is `fastjobs`."""

from __future__ import annotations

import sys

from fastjobs.cli.command import main

if __name__ == "__main__":  # a spawned child of a process pool imports this file again
    sys.exit(main())
