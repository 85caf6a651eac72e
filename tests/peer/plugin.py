"""The conftest.py of a checkout's tests (run.py copies it): targets of this machine's CPU, and TVM's helpers where the package has none."""

import importlib
import importlib.util
import pathlib
import sys

import pytest

pytest_plugins = ["nestsmith.testing.plugin"]
PEER = pathlib.Path(__file__).resolve().parents[1] / "peer"


def _helper(name, path, package=False):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[str(path.parent)] if package else None)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        parent, _, leaf = name.rpartition(".")
        setattr(sys.modules[parent], leaf, module)


for _path in sorted((PEER / "testing").glob("*.py")):
    _helper(f"nestsmith.testing.{_path.stem}", _path)
_helper("nestsmith.topi.testing", PEER / "topi" / "testing" / "__init__.py", package=True)


@pytest.fixture
def target():
    """The CPU, unless a test names its targets."""
    return "llvm"
