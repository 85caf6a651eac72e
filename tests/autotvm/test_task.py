"""Templates and tasks: registration, workloads, spaces, counting of operations."""

import gzip
import json
import pathlib
import pickle

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import autotvm, te, topi
from nestsmith.autotvm.task import (
    TaskExtractEnv,
    args_to_workload,
    deserialize_args,
    get_workload,
    serialize_args,
)
from nestsmith.autotvm.task.code_hash import attach_code_hash, attach_code_hash_to_arg
from nestsmith.autotvm.task.task import compute_flop, lookup_task
from nestsmith.target import Target

PEER = json.loads(
    gzip.decompress((pathlib.Path(__file__).parents[1] / "data" / "peer-autotvm.json.gz").read_bytes())
)
NAMES = iter(range(1000))


@pytest.fixture
def name():
    """A name that no template has."""
    return f"test/{next(NAMES)}"


def product(name):
    @autotvm.template(name)
    def matmul(n, l, m, dtype):
        a, b = te.placeholder((n, l), dtype, "A"), te.placeholder((l, m), dtype, "B")
        k = te.reduce_axis((0, l), name="k")
        c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
        s = te.create_schedule(c.op)
        y, x = s[c].op.axis
        cfg = autotvm.get_config()
        cfg.define_split("tile_y", y, num_outputs=2)
        cfg.define_split("tile_x", x, num_outputs=2)
        yo, yi = cfg["tile_y"].apply(s, c, y)
        xo, xi = cfg["tile_x"].apply(s, c, x)
        s[c].reorder(yo, xo, s[c].op.reduce_axis[0], yi, xi)
        return s, [a, b, c]

    return matmul


def scaled(name, asked=None):
    """A template of two halves: y = 2 * (x + 1)."""

    @autotvm.register_topi_compute(name)
    def compute(cfg, x, out_dtype):
        cfg.define_knob("unroll", [0, 1])
        y = te.compute(x.shape, lambda *i: x[i] + 1.0, name="y")
        return te.compute(x.shape, lambda *i: y[i].astype(out_dtype) * 2.0, name="z")

    @autotvm.register_topi_schedule(name)
    def schedule(cfg, outs):
        if asked is not None:
            asked.append(cfg["unroll"].val)
        cfg.define_split("tile", outs[0].op.axis[0], num_outputs=2)
        return te.create_schedule([o.op for o in outs])

    return compute, schedule


# ---- arguments ----


def test_arguments_as_tuples():
    a = te.placeholder((1, 64), "int8")
    n = te.var("n")
    given = (a, [1, (2, 3)], "NCHW", None, True, 1.5, np.int64(3), np.array([1, 2]).shape, te.const(7), n)
    workload = args_to_workload(given, "t")
    assert workload[:-1] == ("t", ("TENSOR", (1, 64), "int8"), (1, (2, 3)), "NCHW", None, 1, 1.5, 3, (2,), 7)
    assert workload[-1] is n and hash(workload) is not None
    again = deserialize_args(serialize_args(given))
    assert (again[0].shape, again[0].dtype) == ((1, 64), "int8") and serialize_args(again) == serialize_args(given)
    assert deserialize_args(((), ("TENSOR", 1))) == [(), ("TENSOR", 1)]
    with pytest.raises(TypeError, match="cannot have the argument {}, a dict"):
        serialize_args([{}])


# ---- tasks ----


def test_a_task_of_one_function(name):
    matmul = product(name)
    task = autotvm.task.create(name, args=(64, 32, 48, "float32"), target="llvm")
    assert (len(task.config_space), task.flop) == (70, 2 * 64 * 32 * 48)
    assert task.workload == (name, 64, 32, 48, "float32") and str(task.target) == "llvm -keys=cpu"
    sch, tensors = task.instantiate(task.config_space.get(17))
    assert [t.op.name for t in tensors] == ["A", "B", "C"]
    assert "for (i.outer: int32, 0, 8)" in str(ns.lower(sch, tensors))
    module = ns.build(sch, tensors, target="llvm")
    a, b = np.arange(64 * 32, dtype="f4").reshape(64, 32) % 7, np.ones((32, 48), "f4")
    c = ns.nd.array(np.zeros((64, 48), "f4"))
    module(ns.nd.array(a), ns.nd.array(b), c)
    np.testing.assert_array_equal(c.numpy(), a @ b)
    with pytest.raises(TypeError, match="takes no keyword arguments: dtype"):
        matmul(64, 32, 48, dtype="float32")


def test_a_template_called_directly_asks_the_context(name):
    matmul = product(name)
    task = autotvm.create(name, (64, 32, 48, "float32"), "llvm")
    with Target("llvm"), autotvm.task.ApplyConfig(task.config_space.get(2)):
        sch, tensors = matmul(64, 32, 48, "float32")
    assert "0, 16)" in str(ns.lower(sch, tensors))
    with Target("llvm"):
        sch, tensors = matmul(64, 32, 48, "float32")  # nobody tuned it
    assert "0, 64)" in str(ns.lower(sch, tensors))


def test_a_task_of_two_halves(name):
    asked = []
    compute, schedule = scaled(name, asked)
    task = autotvm.create(name, (te.placeholder((8, 4), name="x"), "float32"), "llvm")
    assert task.workload == (name, ("TENSOR", (8, 4), "float32"), "float32")
    assert list(task.config_space.space_map) == ["unroll", "tile"] and len(task.config_space) == 8
    sch, tensors = task.instantiate(task.config_space.get(1))
    assert asked == [0, 1] and [t.op.name for t in tensors] == ["z", "placeholder"]
    z = tensors[0]
    assert z.op.attrs["workload"] == task.workload == get_workload([z], name) == get_workload(z)
    relu = topi.nn.relu(z)
    assert get_workload(relu, name) == task.workload  # behind what was fused
    assert get_workload(relu, "other") is None
    with pytest.raises(RuntimeError, match=f"Cannot find TOPI workload {name}"):
        schedule([te.compute((3,), lambda i: te.const(1.0))])


def test_several_outputs_keep_their_order(name):
    @autotvm.register_topi_compute(name)
    def compute(cfg, x):
        return te.compute(x.shape, lambda i: (x[i] + 1.0, x[i] * 2.0), name="pair")

    a, b = compute(te.placeholder((4,)))
    assert (a.value_index, b.value_index) == (0, 1) and a.op == b.op and get_workload([b])[0] == name


def test_a_name_has_each_half_once(name):
    scaled(name)
    with pytest.raises(ValueError, match="has its compute function already"):
        scaled(name)
    product(name + "b")
    with pytest.raises(ValueError, match="has its customized function already"):
        product(name + "b")


@pytest.mark.parametrize("made", [None, 3, [1, 2], (None, [])])
def test_what_is_no_schedule_with_its_tensors_is_told(name, made):
    autotvm.template(name)(lambda n: made)
    with pytest.raises(TypeError, match="the template returned .*; it must return its schedule and the list of its tensors"):
        autotvm.task.create(name, (4,), "llvm")


def test_half_a_template_and_a_missing_one(name):
    autotvm.register_topi_compute(name, lambda cfg, x: te.compute(x.shape, lambda i: x[i] + 1.0))
    with pytest.raises(RuntimeError, match="only one half; .*register_topi_schedule"):
        autotvm.create(name, (te.placeholder((4,)),), "llvm")
    missing = lookup_task("tutorial/nothing")
    with pytest.raises(RuntimeError, match="missing task tutorial/nothing"):
        missing()
    with pytest.raises(ValueError, match="target is None"):
        autotvm.create(name, (), None)
    with pytest.raises(TypeError, match="args is 4; it must be a tuple"):
        autotvm.create(name, 4, "llvm")


def test_tasks_are_sent_without_their_space(name):
    product(name)
    task = autotvm.create(name, (64, 32, 48, "float32"), Target("llvm", "llvm"))
    size = len(pickle.dumps(task))
    assert size < 1000
    again = pickle.loads(pickle.dumps(task))
    assert again.workload == task.workload and again.target == task.target and again.flop == task.flop
    assert again.target_host is not None and str(again.config_space) == str(task.config_space)


def test_extraction_notes_tasks_once(name):
    compute, _ = scaled(name)
    x = te.placeholder((4,))
    with TaskExtractEnv() as env:
        TaskExtractEnv.current = env
        try:
            compute(x, "float32")
            compute(x, "float32")
            compute(x, "int32")
        finally:
            TaskExtractEnv.current = None
    assert env.get_tasks() == [(name, (("TENSOR", (4,), "float32"), d)) for d in ("float32", "int32")]


def test_versions_of_templates(name, caplog):
    @autotvm.template(name)
    def t(n):
        x = te.placeholder((n,))
        y = te.compute((n,), lambda i: x[i] + 1.0)
        s = te.create_schedule(y.op)

        @attach_code_hash(s)
        def schedule():
            pass

        schedule()
        return s, [x, y]

    task = autotvm.create(name, (4,), "llvm")
    code = task.config_space.code_hash
    assert int(code, 16) and task.config_space.get(0).code_hash == code
    old = task.config_space.get(0)
    task.instantiate(old)
    assert not caplog.records
    old.code_hash = "1234"
    task.instantiate(old)
    task.instantiate(old)
    assert len(caplog.records) == 1 and "has changed since configuration 0 was recorded" in caplog.text

    class S:
        pass

    attach_code_hash_to_arg(1)(lambda a, s: None)(0, s := S())
    assert int(s.code_hash, 16)


# ---- operations ----


def flop(out):
    return compute_flop(te.create_schedule(out.op))


def test_operations_of_the_specification():
    x, w = te.placeholder((1, 8, 14, 14)), te.placeholder((16, 8, 3, 3))
    assert flop(topi.nn.conv2d(x, w, 1, 0, 1)) == 2 * 16 * 12 * 12 * 8 * 3 * 3
    assert flop(topi.nn.conv2d(x, w, 1, 1, 1)) == 2 * 16 * 14 * 14 * 8 * 3 * 3 + 7 * 8 * 16 * 16  # and the padding
    a, b = te.placeholder((10,)), te.placeholder((20,))
    assert flop(te.compute((10, 20), lambda i, j: a[i] * b[j])) == 10 * 20
    k, l = te.reduce_axis((0, 2)), te.reduce_axis((0, 3))
    pool = te.compute((1, 8, 12, 12), lambda n, c, i, j: te.max(x[n, c, i + k, j + l], axis=[k, l]))
    assert flop(pool) == 8 * 12 * 12 * 2 * 3
    k, l = te.reduce_axis((0, 2)), te.reduce_axis((0, 3))
    average = te.compute((1, 8, 12, 12), lambda n, c, i, j: te.sum(te.div(x[n, c, i + k, j + l], 6.0), axis=[k, l]))
    assert flop(average) == 2 * 8 * 12 * 12 * 2 * 3
    with pytest.raises(RuntimeError, match="Cannot find float number operation.*add_flop"):
        flop(te.compute((10,), lambda i: a[i]))


def test_operations_that_are_counted_and_not():
    a = te.placeholder((10,))
    assert flop(te.compute((10,), lambda i: te.if_then_else(te.all(i > 2, i < 7), a[i] + 1.0, 0.0))) == 10 * 4
    assert flop(te.compute((10,), lambda i: te.max(a[i] * 2.0, a[9 - i]).astype("int32"))) == 10 * 2
    shared = te.compute((10,), lambda i: a[i] + 1.0)
    assert flop(te.compute((10,), lambda i: shared[i] * shared[9 - i])) == 10 + 10
    left, right = te.compute((10,), lambda i: shared[i] * 2.0), te.compute((10,), lambda i: shared[i] * 3.0)
    assert flop(te.compute((10,), lambda i: left[i] + right[i])) == 10 * 5  # once per reader
    n = te.var("n")
    b = te.placeholder((n,))
    with pytest.raises(RuntimeError, match="no constant length.*add_flop"):
        flop(te.compute((n,), lambda i: b[i] + 1.0))


SPATIAL = [t for t in PEER["resnet-18-NCHW-mali"]["tasks"] if "spatial" in t["name"]]


@pytest.mark.parametrize("padded", SPATIAL, ids=lambda t: str(t["args"][1][1]))
def test_operations_of_the_reference(padded):
    data, kernel, strides, padding, dilation, dtype = padded["args"]
    out = topi.nn.conv2d(te.placeholder(data[1]), te.placeholder(kernel[1]), strides, padding, dilation, out_dtype=dtype)
    assert flop(out) == padded["flop"]


def test_a_template_says_its_operations_itself(name):
    @autotvm.template(name)
    def t(n):
        autotvm.get_config().add_flop(17)
        autotvm.get_config().add_flop(4)
        x = te.placeholder((n,))
        y = te.compute((n,), lambda i: x[i] + 1.0)
        return te.create_schedule(y.op), [x, y]

    assert autotvm.create(name, (4,), "llvm").flop == 21
