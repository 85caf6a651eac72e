"""Layering check: a folder of csrc may include headers of folders below it only. No circles, no exceptions."""

import pathlib
import re
import sys

LAYER = {"base": 0, "program": 1, "device": 2, "graph": 3, "ir": 2, "te": 3, "schedule": 4, "lower": 5, "interp": 5, "codegen": 6,
         "compile": 7, "measure": 8, "model": 8, "search": 9, "tune": 10, "py": 11}


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
