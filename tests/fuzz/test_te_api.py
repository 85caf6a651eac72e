"""Every function and operator of te with arguments of every wrong kind: exceptions, no crash, no internal error."""

import itertools
import operator
import random
import warnings

import numpy as np

from nestsmith import _core, te, tir, topi

ENGINE = (_core.Expr, _core.Tensor, _core.Operation, _core.ComputeDAG, _core.TensorSlice)
OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.lshift,
    operator.rshift, operator.and_, operator.or_, operator.xor, operator.eq, operator.ne, operator.lt, operator.ge,
]  # fmt: skip
UNARY = [operator.neg, operator.invert, abs, bool, int, float, hash, str, repr, operator.index, len]


def values():
    a, i, k = te.placeholder((4, 8), name="A"), te.var("i"), te.reduce_axis((0, 8), "k")
    dag = _core.ComputeDAG([topi.relu(a)])
    plain = [None, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63), 1.5, float("inf"), float("nan"), "x", "", True, (), [], {}]
    odd = [object(), int, b"x", 3 + 2j, "int32", "Add", "exp", [1], (1, 2)]
    arrays = [np.int64(3), np.float16(1), np.zeros(3), np.zeros((), "int8"), np.bool_(True), np.array("s")]
    return plain + odd + arrays + [a, a[0], a.op, i, k, i == 1, i + 1, dag, [k], [i], [a]]


def functions(vals):
    found = [getattr(_core, n) for n in dir(_core) if n.startswith(("expr_", "te_"))]
    methods = "astype equal same_as output text __getitem__ __call__".split()
    found += [getattr(o, n) for o in vals if isinstance(o, ENGINE) for n in methods if n in dir(o)]
    found += [te.var, te.placeholder, te.compute, te.reduce_axis, te.thread_axis, te.sum, te.max, te.const, tir.Select]
    for m in (topi, topi.nn):
        found += [f for n, f in vars(m).items() if callable(f) and not n.startswith("_")]
    return found


def attempt(f, *args):
    try:
        str(f(*args))
    except Exception as e:
        assert not isinstance(e, SystemError) and "please report" not in str(e), (f, args, e)


def test_operators_and_functions():
    rng, vals = random.Random(7), values()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for a, b in itertools.product(vals, vals):
            if isinstance(a, ENGINE) or isinstance(b, ENGINE):
                for op in OPERATORS:
                    attempt(op, a, b)
        for a in vals:
            if isinstance(a, ENGINE):
                for op in UNARY:
                    attempt(op, a)
                for name in dir(a):
                    if not name.startswith("__"):
                        attempt(getattr, a, name)
        for f in functions(vals):
            for _ in range(25):
                attempt(f, *[rng.choice(vals) for _ in range(rng.randint(0, 5))])
