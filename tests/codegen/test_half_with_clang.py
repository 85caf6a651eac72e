"""float16 programs build with every compiler that is installed."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

CODE = """
    import numpy as np, nestsmith as ns
    from nestsmith import te
    a, b = (te.placeholder((32, 32), name=n, dtype="float16") for n in "AB")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    f = ns.build(te.create_schedule(c.op), [a, b, c], "llvm")
    x, y = (np.random.default_rng(i).integers(-3, 4, (32, 32)).astype("float16") for i in range(2))
    z = ns.nd.array(np.zeros((32, 32), "float16"))
    f(ns.nd.array(x), ns.nd.array(y), z)
    assert (z.numpy() == x.astype(float) @ y.astype(float)).all()
    print("equal")
"""


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_half(cc):
    if not shutil.which(cc):
        pytest.skip(f"{cc} is not installed")
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CODE)],
        env={**os.environ, "CC": cc, "NESTSMITH_CACHE_DIR": ""},
        capture_output=True,
        text=True,
    )
    assert out.stdout == "equal\n", out.stderr[-2000:]
