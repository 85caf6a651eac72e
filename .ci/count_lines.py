"""Prints lines of code of python/nestsmith by package, without blanks, comments and docstrings: now, and at a revision.

usage: count_lines.py [REV]
"""

import ast
import collections
import io
import pathlib
import subprocess
import sys
import tarfile
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = "python/nestsmith"
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def code_lines(text):
    """How many lines of a module hold code."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def files_now():
    """(path, text) of the working tree."""
    return ((p.relative_to(ROOT).as_posix(), p.read_text()) for p in (ROOT / PACKAGE).rglob("*.py"))


def files_at(revision):
    """(path, text) of a revision."""
    data = subprocess.run(["git", "archive", revision, PACKAGE], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [(m.name, archive.extractfile(m).read().decode()) for m in archive if m.name.endswith(".py")]


def by_package(files):
    """Lines by package, `.` for modules of the package itself."""
    counts = collections.Counter()
    for path, text in files:
        room, _, rest = path.removeprefix(PACKAGE + "/").partition("/")
        counts[room if rest else "."] += code_lines(text)
    return counts


def main():
    now = by_package(files_now())
    before = by_package(files_at(sys.argv[1])) if len(sys.argv) > 1 else None
    for room in sorted({*now, *(before or ())}):
        print(f"{room:20}{now[room]:8}" + (f"{before[room]:8}{now[room] - before[room]:+8}" if before else ""))
    total = sum(now.values())
    print(f"{'all':20}{total:8}" + (f"{sum(before.values()):8}{total - sum(before.values()):+8}" if before else ""))


if __name__ == "__main__":
    main()
