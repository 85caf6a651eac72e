"""Sums of products, reductions and pools under sampled schedules, with constant weights in the order that the schedules ask
for: the result must not depend on the schedule, whatever the element types."""

import json

import numpy as np
import pytest
from operator_values import decode, difference, encode, is_float
from relay_nn_rows import ROWS
from test_relay import Case, pairs

import nestsmith as ns
from nestsmith import IRModule, auto_scheduler, relay, transform
from nestsmith.contrib import graph_executor

LLVM, CPU = ns.target.Target("llvm"), ns.cpu(0)


def weights_bound(case):
    """The case's network with every input but the first as a constant; what it should give stays."""
    table = dict(zip(case.params[1:], map(relay.const, case.arrays[1:])))
    return relay.Function(case.params[:1], relay.expr.bind(case.body, table) if table else case.body)


def build(mod, seed):
    """The network with a sampled schedule for every task."""
    history = auto_scheduler.ApplyHistoryBest(None)
    for t in auto_scheduler.extract_tasks(mod, {}, LLVM)[0]:
        policy = auto_scheduler.SketchPolicy(t, auto_scheduler.RandomModel(), seed=seed, verbose=0)
        states = policy.sample_initial_population()
        history.update(LLVM, t.workload_key, states[seed % len(states)])
    with history, transform.PassContext(opt_level=3):
        return relay.build(mod, LLVM)


def check(row, dtype, out, seed):
    """What is wrong under sampled schedules; None if nothing is."""
    case = Case(row, dtype, out)
    lib = build(IRModule.from_expr(weights_bound(case)), seed)
    m = graph_executor.GraphModule(lib["default"](CPU))
    m.run(**{case.params[0].name_hint: case.arrays[0]})
    for k, (v, t) in enumerate(zip(case.want, case.types)):
        got = m.get_output(k).numpy()
        wrong = difference(decode(got, t), v if is_float(t) else decode(encode(v, t), t), t, row.accuracy, row.loss)
        if wrong:
            return f"{row}: {dtype}{' -> ' + out if out else ''}, seed {seed}: {wrong}"
    return None


def rows_of(*names):
    return [r for r in ROWS if r.name in names]


PRODUCTS = rows_of(
    "nn.dense", "nn.matmul", "nn.batch_matmul", "nn.conv2d", "nn.conv2d_transpose", "nn.conv1d", "nn.conv3d"
)
WITH_OUT = [r for r in PRODUCTS if r.outs]
REDUCTIONS = rows_of("sum", "mean", "max", "argmax", "nn.softmax", "nn.max_pool2d", "nn.avg_pool2d", "nn.layer_norm")


def constant_types(row, dtype):
    """bfloat16 constants do not exist: NumPy has no such arrays."""
    return dtype != "bfloat16" or len(row.inputs) == 1


@pytest.mark.some(6)
@pytest.mark.parametrize("k", range(8))
def test_sample(k):
    row = WITH_OUT[(7 * k) % len(WITH_OUT)]
    dtype, out = row.outs[k % len(row.outs)]
    if not constant_types(row, dtype):
        dtype, out = "int8", "int32"
    assert not check(row, dtype, out, k)


@pytest.mark.full
@pytest.mark.parametrize("row", PRODUCTS + REDUCTIONS, ids=str)
def test_everything(row):
    wrong = [check(row, dtype, out, seed) for seed, (dtype, out) in enumerate(pairs(row)) if constant_types(row, dtype)]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_weights_are_relaid():
    """Sampled schedules do read weights in another order, or the tests above would say nothing about that."""
    rng = np.random.default_rng(0)
    x, w = relay.var("x", shape=(8, 64), dtype="int8"), relay.const(rng.integers(-9, 9, (32, 64)).astype("int8"))
    mod = IRModule.from_expr(relay.Function([x], relay.nn.dense(x, w, out_dtype="int32")))
    a = rng.integers(-100, 100, (8, 64)).astype("int8")
    relaid = 0
    for seed in range(4):
        lib = build(mod, seed)
        m = graph_executor.GraphModule(lib["default"](CPU))
        m.run(x=a)
        np.testing.assert_array_equal(m.get_output(0).numpy(), a.astype("int32") @ w.data.T.astype("int32"))
        relaid += any("axis" in arg for k in lib.kernels.values() for arg in json.loads(k.manifest)["args"])
    assert relaid
