"""Layering check: rooms of csrc and of the package may use rooms of a lower layer only. No circles, no exceptions.

In Python imports inside functions count as well, and modules of one room may not import each other in a circle. Inside a
function only packages that users may not have are imported; what runs as a program (``if __name__ == "__main__"``) may ask anyone.
"""

import ast
import pathlib
import re
import sys

C = {
    "base": 0, "program": 1, "device": 2, "graph": 3, "rt": 4, "ir": 2, "te": 3, "schedule": 4, "lower": 5, "interp": 5, "codegen": 6,
    "compile": 7, "measure": 8, "model": 8, "runner": 9, "search": 9, "template": 9, "tune": 10, "py": 11,
}  # fmt: skip
RUNTIME = {"base", "program", "device", "graph", "rt"}  # a library that is linked without the other rooms

# The longest prefix of a module's name decides; "" is the package itself.
PYTHON = {
    "_core": -1, "_absent": 0, "_load": 0, "_version": 0, "check": 0, "error": 0, "files": 0, "forks": 0, "numerics": 0, "registry": 0, "states": 0,
    "structure": 0,
    "_ffi": 1, "script": 1, "compiling": 1, "contrib": 1, "runtime.device": 1, "tir": 1,
    "arith": 2, "target": 2, "te": 2,
    "runtime": 3, "topi": 3,
    "cluster": 4, "contrib.cblas": 4, "contrib.graph_executor": 4, "contrib.nvcc": 4, "driver": 4, "nd": 4,
    "contrib.graph_runtime": 5, "contrib.debugger": 5, "rpc": 5, "relay": 5,
    "instrument": 7, "ir": 6, "tir.transform": 6, "transform": 6, "contrib.target": 6, "auto_scheduler": 6,
    "autotvm": 7,
    "topi.per_target": 8, "topi.adreno": 9, "topi.arm_cpu": 9, "topi.bifrost": 9, "topi.cuda": 9, "topi.generic": 9, "topi.gpu": 9, "topi.hexagon": 9,
    "topi.hls": 9, "topi.intel_graphics": 9, "topi.mali": 9, "topi.rocm": 9, "topi.x86": 9,
    "compiled": 8, "pretrain": 8, "testing": 8,
    "": 9,
    "__main__": 10, "commands": 10, "demo": 10, "doctor": 10, "dynamo": 10, "exec": 10, "log": 10, "support": 10,
}  # fmt: skip
EXAMINERS = ("doctor",)  # say themselves what cannot be imported


def check_c():
    """Includes that go up, or to the side."""
    for path in sorted(pathlib.Path("csrc").glob("*/*.[ch]")):
        room = path.parent.name
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#include "(\w+)/', line)
            if not found or found[1] == room:
                continue
            if C.get(found[1], 99) >= C[room]:
                yield f"{path}:{number}: {room} ({C[room]}) must not include {found[1]} ({C.get(found[1])})"
            elif room in RUNTIME and found[1] not in RUNTIME:
                yield f"{path}:{number}: {room} is part of the runtime, {found[1]} is not"


class Module:
    """A module of the package: its name without the package's, and what it imports."""

    def __init__(self, path, root):
        parts = path.relative_to(root).with_suffix("").parts
        self.path, self.is_package = path, parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)
        self.room = next(p for p in (self.name.rsplit(".", k)[0] for k in range(9)) if p in PYTHON or "." not in p)
        if self.room not in PYTHON:
            self.room = ""

    def imports(self, names):
        """(module or outside package, line, whether inside a function)."""
        for node, inside in _imports(ast.parse(self.path.read_text()), False):
            if isinstance(node, ast.Import):
                found = [a.name for a in node.names]
            else:
                base = node.module or ""
                if node.level:
                    own = ["nestsmith", *self.name.split(".")] if self.name else ["nestsmith"]
                    own = own[: len(own) - node.level + self.is_package]
                    base = ".".join(own + ([node.module] if node.module else []))
                full = [f"{base}.{a.name}" for a in node.names]
                found = [f if f.removeprefix("nestsmith.") in names else base for f in full]
            for f in found:
                yield f, node.lineno, inside


def _imports(node, inside):
    for x in ast.iter_child_nodes(node):
        if isinstance(x, (ast.Import, ast.ImportFrom)):
            yield x, inside
        elif not (isinstance(x, ast.If) and re.search("TYPE_CHECKING|__name__", ast.unparse(x.test))):
            yield from _imports(x, inside or isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))


def check_python():
    """Imports that go up or to the side, stand in a function, or go in a circle."""
    root = pathlib.Path("python/nestsmith")
    modules = [Module(p, root) for p in sorted(root.rglob("*.py"))]
    names, inner = {m.name for m in modules} | {"_core"}, {m.name: set() for m in modules}
    for m in modules:
        for full, line, inside in m.imports(names):
            own = full.split(".")[0] == "nestsmith"
            if inside and m.name not in EXAMINERS and (own or full.split(".")[0] in sys.stdlib_module_names):
                yield f"{m.path}:{line}: {full} is imported inside a function"
            if not own:
                continue
            name = full.removeprefix("nestsmith").removeprefix(".")
            room = next((p for p in (name.rsplit(".", k)[0] for k in range(9)) if p in PYTHON), "")
            if room == m.room:
                inner[m.name].add(name)
            elif PYTHON[room] >= PYTHON[m.room]:
                yield f"{m.path}:{line}: {m.room or 'nestsmith'} ({PYTHON[m.room]}) must not import {full} ({PYTHON[room]})"
    packages = {m.name for m in modules if m.is_package}
    for name in names - packages - {"_core"}:
        yield from _circle(name, {k: v - packages for k, v in inner.items()})


def _circle(start, edges):
    """A shortest way from a module back to it, told by its first module in the alphabet."""
    ways, seen = [[start]], set()
    while ways:
        way = ways.pop(0)
        for to in sorted(edges.get(way[-1], ())):
            if to == start:
                if start == min(way):
                    yield f"circle: {' -> '.join([*way, to])}"
                return
            if to not in seen:
                seen.add(to)
                ways.append([*way, to])


def main() -> int:
    bad = [*check_c(), *check_python()]
    print(*bad, sep="\n", end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
