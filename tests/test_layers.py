"""The layering check finds what it is there for, and nothing in what is allowed."""

import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(__file__).parents[1] / ".ci" / "check_layers.py"
PACKAGES = ("", "relay", "auto_scheduler", "runtime")


def findings(folder, files):
    for package in PACKAGES:
        path = folder / "python" / "nestsmith" / package / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = subprocess.run([sys.executable, CHECK], cwd=folder, capture_output=True, text=True)
    assert run.returncode == bool(run.stdout) and not run.stderr
    return run.stdout


P = "python/nestsmith/"


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({"csrc/device/a.c": '#include "codegen/codegen.h"\n'}, "csrc/device/a.c:1: device (2) must not include codegen (6)"),
        ({"csrc/graph/a.c": '#include "ir/ir.h"\n'}, "graph is part of the runtime, ir is not"),
        ({"csrc/interp/a.c": '#include "lower/lower.h"\n'}, "interp (5) must not include lower (5)"),
        ({P + "relay/a.py": "from ..auto_scheduler import b\n", P + "auto_scheduler/b.py": ""}, "relay (5) must not import"),
        ({P + "runtime/a.py": "def f():\n    import nestsmith.relay\n"}, "nestsmith.relay is imported inside a function"),
        ({P + "runtime/a.py": "def f():\n    import nestsmith.relay\n"}, "runtime (3) must not import nestsmith.relay (5)"),
        ({P + "runtime/a.py": "def f():\n    import json\n"}, "json is imported inside a function"),
        ({P + "relay/a.py": "from . import b\n", P + "relay/b.py": "from .a import x\n"}, "circle: relay.a -> relay.b -> relay.a"),
    ],
)
def test_found(files, want, tmp_path):
    assert want in findings(tmp_path, files)


def test_allowed(tmp_path):
    files = {
        "csrc/ir/a.c": '#include "base/base.h"\n#include "ir/b.h"\n#include <stdio.h>\n',
        P + "auto_scheduler/a.py": "from ..relay.b import c\nfrom .d import e\n",
        P + "auto_scheduler/d.py": "import typing\nif typing.TYPE_CHECKING:\n    from .a import f\n",
        P + "relay/b.py": "def f():\n    import onnx\n",
    }
    assert findings(tmp_path, files) == ""
