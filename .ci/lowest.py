"""Prints pip constraints that pin what pyproject.toml depends on to the lowest version that its >= allows.

The argument names extras, by comma. Tools of the tests are not pinned: what is asked is whether the package works. The
drivers that an app brings itself are the tests' own, and are pinned as well.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

DRIVERS = ("aiomysql", "pymysql")

read = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
project, tests = read["project"], read["dependency-groups"]["test"]
wanted = list(project["dependencies"])
wanted += [each for each in tests if isinstance(each, str) and each.startswith(DRIVERS)]
for extra in filter(None, sys.argv[1].split(",")):
    wanted += project["optional-dependencies"][extra]
for requirement in wanted:
    found = re.fullmatch(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?>=([0-9.]+)", requirement)
    if found is None:
        sys.exit(f"{requirement!r} in pyproject.toml has no lower bound of the form name>=version")
    print(f"{found[1]}=={found[2]}")
