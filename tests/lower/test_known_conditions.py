"""What is simplified under a condition must not be remembered beyond it."""

import json

import numpy as np

from nestsmith import _core, te, topi

# fmt: off
STEPS = [
    ["CHW", 3, "local"],
    ["SP", 3, 0, 1, [1, 1, 1, 1], 1],
    ["SP", 3, 5, 4, [1, 4, 1, 1], 1],
    ["SP", 3, 10, 6, [2, 1, 1, 3], 1],
    ["SP", 3, 15, 6, [2, 3, 1, 1], 1],
    ["SP", 3, 20, 3, [1, 1], 1],
    ["SP", 3, 23, 3, [1, 3], 1],
    ["RE", 3, [0, 5, 10, 15, 1, 6, 11, 16, 2, 7, 12, 17, 20, 23, 21, 24, 3, 8, 13, 18, 22, 25, 4, 9, 14, 19]],
    ["FSP", 4, 0, 1, 3],
    ["FSP", 4, 4, 2, 3],
    ["FSP", 4, 8, 3, 3],
    ["FSP", 4, 12, 4, 3],
    ["RE", 4, [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]],
    ["CA", 3, 4, 11],
    ["CHR", 2, "shared", [3]],
    ["CA", 3, 4, 13],
    ["CHR", 1, "shared", [4]],
    ["CA", 2, 5, 13],
    ["CI", 1],
    ["FU", 6, [0, 1, 2, 3]],
    ["AN", 6, 0, 5],
    ["FU", 6, [1, 2, 3, 4]],
    ["AN", 6, 1, 4],
    ["FU", 6, [2, 3, 4, 5]],
    ["AN", 6, 2, 6],
    ["FU", 4, [0, 1, 2, 3]],
    ["SP", 4, 0, 3, [1], 1],
    ["AN", 4, 1, 2],
    ["FFSP", 4, 0, [4, 3, 2, 1], 1, 1],
    ["AN", 4, 1, 6],
    ["FU", 2, [0, 1, 2, 3]],
    ["SP", 2, 0, 9, [1], 1],
    ["AN", 2, 1, 2],
    ["FFSP", 2, 0, [4, 3, 2, 1], 1, 1],
    ["AN", 2, 1, 6],
    ["PR", 5, 0, "auto_unroll_max_step$1024"],
]
# fmt: on


def test_padding_guards_of_a_shared_tile():
    """Each element's guard knows more of the thread's number than the next one's does."""
    x, w = te.placeholder((1, 4, 6, 6), name="x"), te.placeholder((4, 1, 3, 3), name="w")
    dag = _core.ComputeDAG([x, w, topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)])
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, s).astype("float32") for s in ((1, 4, 6, 6), (4, 1, 3, 3))]
    plain, out = np.zeros((1, 4, 6, 6), "float32"), np.full((1, 4, 6, 6), np.nan, "float32")
    _core.interp_dag(dag, [*given, plain])
    assert not _core.interp(_core.State(dag, json.dumps(STEPS)), "cuda", [*given, out])["findings"]
    np.testing.assert_array_equal(out, plain)
