"""Layering check: a folder of csrc may include headers of folders below it only. No circles, no exceptions."""

import pathlib
import re
import sys

LAYER = {"base": 0, "program": 0.5, "ir": 1, "te": 2, "schedule": 3, "lower": 4, "interp": 4.5, "codegen": 5, "device": 6, "compile": 6,
         "measure": 7, "model": 7, "search": 8, "tune": 9, "graph": 9, "py": 10}


def main() -> int:
    bad = 0
    for path in sorted(pathlib.Path("csrc").glob("*/*.[ch]")):
        room = path.parent.name
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#include "(\w+)/', line)
            if not found or found[1] == room:
                continue
            other = found[1]
            if other not in LAYER or LAYER[other] >= LAYER[room]:
                print(f"{path}:{number}: {room} ({LAYER.get(room)}) must not include {other} ({LAYER.get(other)})")
                bad += 1
    return 1 if bad else 0


sys.exit(main())
