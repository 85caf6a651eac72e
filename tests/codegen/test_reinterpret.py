"""Bits that are read as another type: of 16 bits unsigned ones as a float, which programs compute with in float32."""

import numpy as np

import nestsmith as ns
from nestsmith import te, tir


def test_bits_as_float16():
    x = te.placeholder((1 << 16,), "uint16", name="X")
    y = te.compute(x.shape, lambda i: tir.reinterpret("float16", x[i]), name="Y")
    bits, got = np.arange(1 << 16, dtype="uint16"), ns.nd.empty(x.shape, "float16")
    ns.build(te.create_schedule(y.op), [x, y], "llvm")(ns.nd.array(bits), got)
    np.testing.assert_array_equal(got.numpy(), bits.view("float16"))
