"""Private arrays of GPU kernels: those that are used at constant places only become variables, all others stay arrays; results are
NumPy's, bit for bit on small integers, on a device of OpenCL and in the checking interpreter.
"""

import re

import numpy as np
import pytest

import nestsmith as ns
from helpers import check_passes, in_turn
from nestsmith import _core, te

CUDA = _core.Target("cuda", sm=80)
N, M, K = 8, 12, 20


def ints(*shape, seed=1, dtype="float32"):
    return np.random.default_rng(seed + len(shape)).integers(-4, 5, shape).astype(dtype)


def product(inner, write="unroll", dtype="float32"):
    """A thread adds up 2 x 4 elements in a private array: its loops are unrolled, vectorized, or stay loops; so are those that write."""
    a, b = te.placeholder((N, K), dtype, name="A"), te.placeholder((K, M), dtype, name="B")
    r = te.reduce_axis((0, K), name="k")
    c = te.compute((N, M), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    own = s.cache_write(c, "local")
    i, j = s[c].op.axis
    i, rows = s[c].split(i, 2)
    j, columns = s[c].split(j, 4)
    s[c].reorder(i, j, rows, columns)
    s[c].bind(i, te.thread_axis("blockIdx.x"))
    s[c].bind(j, te.thread_axis("threadIdx.x"))
    s[own].compute_at(s[c], j)
    x, y = s[own].op.axis
    s[own].reorder(s[own].op.reduce_axis[0], x, y)
    for stage, outer, last, how in ((s[own], x, y, inner), (s[c], rows, columns, write)):
        if how != "loop":
            stage.unroll(outer)
            (stage.unroll if how == "unroll" else stage.vectorize)(last)
    data = [ints(N, K, dtype=dtype), ints(K, M, dtype=dtype)]
    return s, [a, b, c], data, data[0] @ data[1]


def table(wanted):
    """A thread fills a private table, and another one; of the first it takes the elements `wanted` (4 numbers, or those in data)."""
    a, at = te.placeholder((N, 4), name="A"), te.placeholder((N, 4), "int32", name="at")
    t = te.compute((N, 4), lambda i, j: a[i, j] * 2.0, name="T")
    u = te.compute((N, 4), lambda i, j: a[i, j] + 3.0, name="U")

    def point(i, j):
        return t[i, at[i, j] if wanted is None else wanted(j)] + u[i, j]

    out = te.compute((N, 4), point, name="out")
    s = te.create_schedule(out.op)
    i, j = s[out].op.axis
    s[out].bind(i, te.thread_axis("threadIdx.x"))
    s[out].unroll(j)
    for x in (t, u):
        s[x].set_scope("local")
        s[x].compute_at(s[out], i)
        s[x].unroll(s[x].op.axis[1])
    data = [ints(N, 4), np.random.default_rng(3).integers(0, 4, (N, 4)).astype("int32")]
    places = data[1] if wanted is None else np.array([[wanted(j) for j in range(4)]] * N)
    return s, [a, at, out], data, np.take_along_axis(data[0] * 2, places, 1) + data[0] + 3


def text(s, tensors, target):
    return _core.program(s._core, tensors, target, "f")[0]


def is_variables(source, array, n):
    """Whether a private array of n elements has become variables: all declared, none of an array left."""
    declared = set(re.findall(rf"\w+ {array}_(\d+);", source))
    assert (f"{array}[" in source) == (not declared), "one or the other"
    assert not declared or declared == {str(i) for i in range(n)}
    return bool(declared)


def right(s, tensors, data, want):
    """On a device of OpenCL, if there is one, and in the interpreter, after every pass."""
    dev = ns.opencl(0)
    if dev.exist:
        out = ns.nd.array(np.full_like(want, 77), dev)
        ns.build(s, tensors, "opencl", name="f")(*[ns.nd.array(x, dev) for x in data], out)
        np.testing.assert_array_equal(out.numpy(), want)
    for target in (CUDA, _core.Target("opencl")):
        got = [*data, np.full_like(want, 77)]
        assert _core.interp(s._core.state(tensors), target, got, stage="program")["findings"] == []
        np.testing.assert_array_equal(got[-1], want)
        assert check_passes(s._core, target, [*data, want], tensors) == []


@pytest.mark.parametrize(
    "inner,write,variables,dtype",
    in_turn(
        [
            ("unroll", "unroll", True),
            ("vectorize", "vectorize", True),
            ("unroll", "vectorize", True),
            ("loop", "unroll", False),
            ("unroll", "loop", False),
        ],
        ["float32", "int32", "float16"],
    ),
)
def test_sums(inner, write, variables, dtype):
    made = product(inner, write, dtype)
    for target in (CUDA, _core.Target("opencl")):
        assert is_variables(text(*made[:2], target), "C_local", 8) == variables
    right(*made)


@pytest.mark.parametrize("wanted, n", [(lambda j: 3 - j, 4), (lambda j: j // 2, 2), (None, 0)])
def test_a_variable_index(wanted, n):
    """An element that data choose keeps its array, and no other one."""
    made = table(wanted)
    for target in (CUDA, _core.Target("opencl")):
        source = text(*made[:2], target)
        assert is_variables(source, "T", n) == (n > 0) and is_variables(source, "U", 4)
    right(*made)


@pytest.mark.parametrize("terms, dtype", [(1, "float16"), (0, "float32")])
def test_an_address(terms, dtype):
    """Instructions of tensor cores take the addresses of sums and fragments; products by lanes take no address of theirs."""
    a, b = te.placeholder((20, 32), dtype, name="A"), te.placeholder((32, 24), dtype, name="B")
    r = te.reduce_axis((0, 32), name="k")
    c = te.compute((20, 24), lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r), name="C")
    s = te.create_schedule(c.op)
    s[c].tensor_cores((32, 32, 32), (16, 16), 2, False, 1, terms)
    source = text(s, [a, b, c], CUDA)
    own = ("sums", 8), *((("A_lane", 8), ("B_lane", 16)) if terms == 0 else (("A_fragments", 4), ("B_fragments", 4)))
    assert [is_variables(source, *x) for x in own] == [terms == 0] * 3
    data = [ints(20, 32, dtype=dtype), ints(32, 24, dtype=dtype)]
    want = data[0].astype("float32") @ data[1].astype("float32")
    got = [*data, np.full_like(want, 77)]
    assert _core.interp(s._core.state([a, b, c]), CUDA, got, stage="program")["findings"] == []
    np.testing.assert_array_equal(got[-1], want)
    if _core.build_available(CUDA)[0]:
        assert _core.build_report(CUDA, _core.build(CUDA, source, 0, "")[0])["local_bytes"] == 0
