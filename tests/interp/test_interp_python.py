"""The interpreter from Python: reference evaluation against NumPy, reports, and errors that name the argument."""

import numpy as np
import pytest

from nestsmith import _core, te


def matmul(n=5, m=6, k=7):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    return _core.ComputeDAG([a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


def arrays(n=5, m=6, k=7):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (n, k)).astype("float32"), rng.integers(-4, 5, (k, m)).astype("float32")
    return [a, b, np.full((n, m), np.nan, "float32")]


def test_reference_evaluation_equals_numpy():
    x = arrays()
    assert _core.interp_dag(matmul(), x) is None
    np.testing.assert_array_equal(x[2], x[0] @ x[1])


@pytest.mark.parametrize("dtype,by", [("float32", [1, 2.5, 3e38]), ("int32", [1, -3, 40]), ("int64", [1, 2**33 + 1, -(2**40) - 2])])
def test_ldexp_takes_exponents_of_any_type(dtype, by):
    """As C does: a float is cut to an integer, and of a wide integer the low 32 bits count."""
    x, y = te.placeholder((3,), name="X"), te.placeholder((3,), dtype=dtype, name="Y")
    data = [np.ones(3, "float32"), np.array(by, dtype), np.zeros(3, "float32")]
    _core.interp_dag(_core.ComputeDAG([x, y, te.compute((3,), lambda i: te.ldexp(x[i], y[i]), name="Z")]), data)
    want = [2.0, 4.0, np.inf] if dtype == "float32" else [2.0**1, 2.0**-3, 2.0**40] if dtype == "int32" else [2.0, 2.0, 0.25]
    np.testing.assert_array_equal(data[2], np.array(want, "float32"))


@pytest.mark.parametrize("stage", ["loops", "program"])
def test_report_of_a_clean_run(stage):
    x = arrays()
    report = _core.interp(_core.State(matmul()), "c", x, stage=stage)
    assert report["findings"] == [] and report["steps"] > 5 * 6 * 7
    np.testing.assert_array_equal(x[2], x[0] @ x[1])


def test_a_parallel_reduction_is_a_finding():
    state = _core.State(matmul())
    state.apply("RE", 2, [2, 0, 1])
    state.apply("AN", 2, 0, 3)
    report = _core.interp(state, "c", arrays())
    assert any("double write" in f or "race" in f for f in report["findings"])


def test_bad_arguments():
    state, x = _core.State(matmul()), arrays()
    with pytest.raises(ValueError, match="3 arrays are needed"):
        _core.interp(state, "c", x[:2])
    with pytest.raises(ValueError, match="tensor 'B'"):
        _core.interp(state, "c", [x[0], x[1].astype("float64"), x[2]])
    with pytest.raises(ValueError, match="tensor 'A'"):
        _core.interp(state, "c", [x[0][:2].copy(), *x[1:]])
    with pytest.raises((ValueError, BufferError)):
        _core.interp(state, "c", [x[0].T.copy().T, *x[1:]])
    with pytest.raises(ValueError, match="stage must be"):
        _core.interp(state, "c", x, stage="text")
    with pytest.raises(ValueError, match="target kind 'metal'"):
        _core.interp(state, "metal", x)
    with pytest.raises(ValueError, match="8 integers"):
        _core.program(state, None, _core.Target("cuda", hw=[1, 2]), "main")
    with pytest.raises(ValueError, match="stopped after"):
        _core.interp(state, "c", x, max_steps=10)
    frozen = x[2].copy()
    frozen.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        _core.interp(state, "c", [x[0], x[1], frozen])
