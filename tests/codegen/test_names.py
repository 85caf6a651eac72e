"""Functions may have any name, also one that means something in C."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import te


@pytest.mark.parametrize("name", ["double", "memcpy", "main", "_x"])
def test_function_names(name, tmp_path):
    x = te.placeholder((8,), name="double")
    y = te.compute((8,), lambda i: x[i] * 2, name="int")
    f = ns.build(te.create_schedule(y.op), [x, y], "llvm", name=name)
    f.export_library(str(tmp_path / "f.so"))
    a = np.arange(8, dtype="float32")
    for g in (f, f[name], ns.runtime.load_module(str(tmp_path / "f.so"))[name]):
        out = ns.nd.array(np.zeros(8, "float32"))
        g(ns.nd.array(a), out)
        assert np.array_equal(out.numpy(), a * 2)


def test_names_that_are_none():
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] * 2, name="y")
    with pytest.raises(ValueError, match="a-b"):
        ns.build(te.create_schedule(y.op), [x, y], "llvm", name="a-b")
