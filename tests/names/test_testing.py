"""nestsmith.testing: comparisons, and the plugin of pytest in a folder of its own."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import nestsmith
from nestsmith import testing

FILE = """
import nestsmith.testing as T

a = T.parameter(1, 2)
b, c = T.parameters((10, "x"), (20, "y"))
made = []

@T.fixture(cache_return_value=True)
def table(a):
    made.append(a)
    return [a]

def test_together(a, b, c, table):
    table.append(b)
    assert table == [a, b] and (b, c) in ((10, "x"), (20, "y"))

def test_once(a, table):
    assert table == [a] and made.count(a) == 1

@T.parametrize_targets("llvm", "llvm -device=arm_cpu")
def test_named(target, dev):
    assert target.startswith("llvm") and dev.exist

@T.exclude_targets("cuda", "opencl")
def test_enabled(target, dev):
    assert target == "llvm"

@T.known_failing_targets("llvm")
@T.exclude_targets("cuda", "opencl")
def test_known(target):
    assert False

@T.requires_hexagon
def test_skipped():
    assert False

@T.requires_llvm
@T.requires_package("numpy")
def test_has():
    pass

@T.requires_package("no_such_package")
def test_has_not():
    assert False

@T.xfail_parameterizations("1", reason="odd")
def test_cases(a):
    assert a == 2
"""


def test_plugin(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["nestsmith.testing.plugin"]\n')
    (tmp_path / "test_it.py").write_text(FILE)
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "."], cwd=tmp_path,
                         env={"PYTHONPATH": str(pathlib.Path(nestsmith.__file__).parents[1]), "PATH": "/usr/bin:/bin", "TVM_TEST_TARGETS": "llvm"},
                         capture_output=True, text=True, check=False)  # fmt: skip
    # 4 cases together, 2 once, 2 named, 1 enabled, 1 has, 1 of the two cases
    assert ran.stdout.splitlines()[-1].startswith("11 passed, 2 skipped, 2 xfailed"), ran.stdout


def test_assert_allclose():
    testing.assert_allclose(nestsmith.nd.array(np.ones(3, "float32")), [1, 1, 1 + 1e-8])
    with pytest.raises(AssertionError):
        testing.assert_allclose(np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(AssertionError):
        testing.assert_allclose(1.0, 1.1, rtol=1e-2)


def test_gradients():
    x = {"a": np.array([1.0, 2.0]), "b": np.array([3.0])}
    testing.check_numerical_grads(lambda a, b: (a**2).sum() * b[0], x, {"a": 2 * x["a"] * 3, "b": np.array([5.0])})
    with pytest.raises(AssertionError, match="gradient of b"):
        testing.check_numerical_grads(lambda a, b: (a**2).sum() * b[0], x, {"a": 2 * x["a"] * 3, "b": np.array([6.0])})


def test_features():
    assert testing.requires_llvm.here() and not testing.requires_vulkan.here()
    assert testing.device_enabled("llvm") and ("llvm", nestsmith.cpu(0)) in testing.enabled_targets()
    with pytest.raises(ValueError, match="there are llvm"):
        testing.Feature.require("lvm")
    with pytest.raises(ValueError, match="one length"):
        testing.parameters((1, 2), (3,))
    with pytest.raises(RuntimeError, match="not both"):
        testing.parameter(1, by_dict={"a": 2})


def test_module_of_functions():
    m = testing.FrontendTestModule()
    m["double"] = lambda x: 2 * x
    assert m["double"](4) == 8 and nestsmith.get_global_func("testing.echo")(3, 4) == 3


def test_importers_note_where_operators_come_from_unless_they_are_told_not_to():
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).eval()
    spans = []
    for context in (testing.enable_span_filling(), testing.disable_span_filling()):
        with context:
            mod, _ = nestsmith.relay.frontend.from_pytorch(torch.jit.trace(net, torch.zeros(1, 3)), [("x", (1, 3))])
        spans.append([e.span for e in nestsmith.relay.expr.post_order(mod["main"].body) if isinstance(e, nestsmith.relay.Call)])
    assert len(spans[0]) == len(spans[1]) > 1 and all(spans[0]) and not any(spans[1])
