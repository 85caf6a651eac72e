"""Formats of CPython's printf: the compilers check them as C's (csrc/py/py.h), but CPython knows fewer conversions.

``%g`` and the like compile and end in a SystemError, or in text cut short, when the message is wanted.
"""

import pathlib
import re
import sys

CALL = re.compile(r'\b(PyErr_Format|PyUnicode_FromFormat|py_err_objects|py_text_objects)\(((?:"(?:\\.|[^"\\])*"|[^";])*);')
KNOWN = re.compile(r"%(?:%|0?\d*(?:\.\d+)?(?:(?:l|ll|z)?[diu]|[xcsp]))")
OBJECTS = re.compile(r"%[RSU]")


def main() -> int:
    bad = 0
    for path in sorted(pathlib.Path("csrc").glob("*/*.c")):
        text = path.read_text()
        for call in CALL.finditer(text):
            fmt = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', call[2]))
            rest = KNOWN.sub("", fmt)
            if call[1].startswith("py_"):
                rest = OBJECTS.sub("", rest)
            if "%" in rest:
                line = text.count("\n", 0, call.start()) + 1
                print(f"{path}:{line}: {call[1]} does not know {rest[rest.index('%') :][:2]} (csrc/py/py.h says what it does)")
                bad += 1
    return 1 if bad else 0


sys.exit(main())
