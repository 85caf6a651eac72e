"""Expressions: folding against Python and NumPy evaluation, text, type matching, errors."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nestsmith import te, tir

INT_OPS = ["Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max", "EQ", "NE", "LT", "LE", "GT", "GE"]


def wrap(v, bits=32):
    return (v + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def trunc_div(a, b):
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


EVAL = {
    "Add": lambda a, b: wrap(a + b),
    "Sub": lambda a, b: wrap(a - b),
    "Mul": lambda a, b: wrap(a * b),
    "Div": lambda a, b: wrap(trunc_div(a, b)),
    "Mod": lambda a, b: a - b * trunc_div(a, b),
    "FloorDiv": lambda a, b: wrap(a // b),
    "FloorMod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
    "EQ": lambda a, b: int(a == b),
    "NE": lambda a, b: int(a != b),
    "LT": lambda a, b: int(a < b),
    "LE": lambda a, b: int(a <= b),
    "GT": lambda a, b: int(a > b),
    "GE": lambda a, b: int(a >= b),
    "And": lambda a, b: int(bool(a) and bool(b)),
    "Or": lambda a, b: int(bool(a) or bool(b)),
}


def evaluate(e, env):
    """Value of an expression by walking its nodes."""
    kind = e.kind
    if kind == "IntImm":
        return e.value
    if kind == "Var":
        return env[e.name]
    args = [evaluate(a, env) for a in e.args]
    if kind == "Not":
        return int(not args[0])
    if kind == "Select" or (kind == "Call" and len(args) == 3):
        return args[1] if args[0] else args[2]
    if kind == "Cast":
        return args[0]
    return EVAL[kind](*args)


INTS = st.integers(-(2**31), 2**31 - 1)


@given(st.sampled_from(INT_OPS), INTS, INTS)
def test_int_literals_fold(op, a, b):
    node = getattr(tir, op)
    if b == 0 and op in ("Div", "Mod", "FloorDiv", "FloorMod"):
        with pytest.raises(ValueError):
            node(a, b)
        return
    e = node(a, b)
    assert e.kind == "IntImm"
    assert e.value == EVAL[op](a, b)


TREES = st.recursive(
    st.one_of(st.integers(-20, 20), st.sampled_from(["x", "y", "z"])),
    lambda kid: st.one_of(
        st.tuples(st.sampled_from([o for o in INT_OPS if o not in ("EQ", "NE", "LT", "LE", "GT", "GE")]), kid, kid),
        st.tuples(
            st.sampled_from(["Select", "If"]), st.tuples(st.sampled_from(["LT", "EQ", "GE"]), kid, kid), kid, kid
        ),
    ),
    max_leaves=12,
)


class Undefined(Exception):
    pass


def value_of(tree, env):
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    op, *kids = tree
    kids = [value_of(k, env) for k in kids]
    if op in ("Select", "If"):
        return kids[1] if kids[0] else kids[2]
    if op in ("Div", "Mod", "FloorDiv", "FloorMod") and kids[1] == 0:
        raise Undefined
    return EVAL[op](*kids)


def build(tree, variables):
    if isinstance(tree, int):
        return te.const(tree)
    if isinstance(tree, str):
        return variables[tree]
    op, *kids = tree
    kids = [build(k, variables) for k in kids]
    make = {"Select": tir.Select, "If": te.if_then_else}.get(op) or getattr(tir, op)
    return make(*kids)


@settings(max_examples=300)
@given(TREES, st.integers(-30, 30), st.integers(-30, 30), st.integers(-30, 30))
def test_folding_keeps_the_value(tree, x, y, z):
    env = {"x": x, "y": y, "z": z}
    try:
        want = value_of(tree, env)
        e = build(tree, {n: te.var(n) for n in env})
    except (Undefined, ValueError):
        return
    try:
        got = evaluate(e, env)
    except ZeroDivisionError:
        return
    assert got == want


F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.sampled_from(["Add", "Sub", "Mul"]), F32, F32)
def test_float32_literals_fold_in_single_precision(op, a, b):
    f = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op]
    with np.errstate(over="ignore"):
        want = f(np.float32(a), np.float32(b))
    assert np.float32(getattr(tir, op)(te.const(a), te.const(b)).value).tobytes() == want.tobytes() or want == 0


@pytest.mark.parametrize(
    "build, text",
    [
        (lambda x, y: x * 1 + y * 1, "(x + y)"),
        (lambda x, y: x * 2 + y, "((x*2) + y)"),
        (lambda x, y: x - 0, "x"),
        (lambda x, y: 0 - x, "(0 - x)"),
        (lambda x, y: x >= 0, "(x >= 0)"),
        (lambda x, y: x // 1, "x"),
        (lambda x, y: x % 1, "0"),
        (lambda x, y: x * 14 * 14 + (y // 2) * 14 + y // 2, "((((x*14)*14) + (floordiv(y, 2)*14)) + floordiv(y, 2))"),
        (lambda x, y: tir.EQ((x + 1) * 7 % 1, 0), "(bool)1"),
        (lambda x, y: 4 - 1 - x, "(3 - x)"),
        (lambda x, y: (x + 1) + 2, "((x + 1) + 2)"),
        (lambda x, y: -x, "(x*-1)"),
        (lambda x, y: x.astype("float32") * 2, "(float32(x)*2f)"),
        (lambda x, y: x.astype("int8") + 1, "(int32(int8(x)) + 1)"),
        (lambda x, y: x.astype("float16") * 2.0, "(float32(float16(x))*2f)"),
        (lambda x, y: te.all(x > 1, y < 2, x == y), "(((x > 1) && (y < 2)) && (x == y))"),
        (lambda x, y: tir.Select(tir.const(True), x, y), "select((bool)1, x, y)"),
        (lambda x, y: te.if_then_else(tir.const(True), x, y), "x"),
        (lambda x, y: te.min(x, y), "min(x, y)"),
        (lambda x, y: te.max(x, x), "x"),
        (lambda x, y: x << 2, "tir.shift_left(x, 2)"),
        (lambda x, y: ~x, "tir.bitwise_not(x)"),
        (lambda x, y: te.truncmod(x, 3), "(x % 3)"),
        (lambda x, y: te.const(1e-12), "1e-12f"),
        (lambda x, y: te.const(1000000.0), "1e+06f"),
        (lambda x, y: te.const(0.5, "float16"), "0.5h"),
        (lambda x, y: te.const(0.5, "float64"), "0.5"),
        (lambda x, y: te.const(30521, "int64"), "(int64)30521"),
        (lambda x, y: te.const(2**40), "(int64)1099511627776"),
        (lambda x, y: te.min_value("float32"), "-3.40282e+38f"),
        (lambda x, y: te.max_value("int8"), "(int8)127"),
        (lambda x, y: te.abs(x), "select((x >= 0), x, (0 - x))"),
        (lambda x, y: te.isinf(x.astype("float32")), "((tir.fabs(float32(x)) == inff) && !tir.isnan(float32(x)))"),
        (lambda x, y: te.size_var("n") + 1, "({n|n>=0} + 1)"),
        (lambda x, y: np.int64(3) * x, "((int64)3*int64(x))"),
    ],
)
def test_text(build, text):
    assert str(build(te.var("x"), te.var("y"))) == text


def test_equality_is_deferred():
    x, y = te.var("x"), te.var("y")
    assert x == x and not x == y and x != y
    assert {x: 1, y: 2}[x] == 1
    assert str(te.if_then_else(x == y, 1, 2)) == "tir.if_then_else((x == y), 1, 2)"
    assert (x == None) is not None and not (x == None)  # noqa: E711
    assert [y, x].index(x) == 1


@pytest.mark.parametrize(
    "bad, error, words",
    [
        (lambda x: bool(x > 1), ValueError, "truth value"),
        (lambda x: x / 2, RuntimeError, "floordiv"),
        (lambda x: x // 0, ValueError, "zero"),
        (lambda x: x + "a", TypeError, ""),
        (lambda x: x + None, TypeError, ""),
        (lambda x: x.astype("float33"), ValueError, "float33"),
        (lambda x: int(x), TypeError, "constant"),
        (lambda x: te.power(x, 2), TypeError, "pow"),
        (lambda x: te.const(2**70), OverflowError, "64 bits"),
        (lambda x: te.exp(x, x), TypeError, ""),
        (lambda x: te.all(), ValueError, "condition"),
    ],
)
def test_errors(bad, error, words):
    with pytest.raises(error, match=words or None):
        bad(te.var("x"))


def test_literals():
    assert te.const(3).dtype == "int32" and te.const(3.0).dtype == "float32" and te.const(True).dtype == "bool"
    assert te.const(np.float16(0.5)).dtype == "float16" and te.const(np.int8(-3)).value == -3
    assert int(te.const(3)) == 3 and float(te.const(0.5)) == 0.5 and range(te.const(2))[1] == 1
