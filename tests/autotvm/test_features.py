"""What models of template tuners see: loops of a program in analysis form, curves, knobs."""

import gzip
import json
import math
import pathlib

import numpy as np
import pytest
import tuning_spaces

from nestsmith import _core, autotvm, te
from nestsmith.autotvm.tuner.features import FeatureCache, Features, row_of

PEER = pathlib.Path(__file__).parent.parent / "data" / "peer-autotvm.json.gz"


def matmul(n):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda y, x: te.sum(a[y, k] * b[k, x], axis=k), name="C")
    return te.create_schedule(c.op), [a, b, c]


def facts(schedule, tensors, target="llvm"):
    return _core.loop_facts(schedule._core, tensors, target)


def lg(x):
    return math.log2(x + 1) if x >= 0 else -math.log2(1 - x)


TABLE = {  # of the product of two matrices of 128 x 128: length, nest, top down, bottom up; A_0, B_0, C_0 and C_1
    "y": ((128, 1, 128, 2097152), (128, -1, 16384, 128), (0, -1, 16384, 128), (128, -1, 16384, 128)),
    "x": ((128, 2, 16384, 16384), (0, -1, 128, 128), (1, -1, 16384, 1), (1, -1, 128, 128)),
    "k": ((128, 3, 2097152, 128), (1, -1, 128, 1), (128, -1, 128, 1), (0, -1, 1, 128)),
}


def test_loops_of_a_product_are_those_of_the_published_table():
    got = facts(*matmul(128))
    assert len(got) == 3
    for f, (attributes, a, b, c) in zip(got, TABLE.values()):
        assert (f["length"], f["nest"], f["top_down"], f["bottom_up"], f["kind"]) == (*attributes, "for")
        assert f["touch"] == {n: (*t, 0, 0) for n, t in (("A_0", a), ("B_0", b), ("C_0", c), ("C_1", c))}
    assert [(f["add"], f["mul"], f["div"]) for f in got] == [(0, 0, 0), (0, 0, 0), (1, 1, 0)]


def test_the_vector_is_the_table_in_logarithms():
    schedule, tensors = matmul(128)
    got, want = _core.loop_vector(schedule._core, tensors, "llvm"), []
    for k, (attributes, a, b, c) in enumerate(TABLE.values()):
        length, nest, down, up = attributes
        want += [lg(length), nest, lg(down), lg(up), *(i == 9 for i in range(11)), lg(k == 2), lg(k == 2), 0]
        for touch in (a, b, c, c):
            want += [*map(lg, touch), 0, 0]
    np.testing.assert_allclose(got, np.array(want, np.float32), rtol=1e-6)


def test_curves_have_720_numbers_for_three_buffers():
    schedule, tensors = matmul(128)
    got = _core.loop_vector(schedule._core, tensors, "llvm", "curve", 30)
    assert got.shape == (720,) and np.isfinite(got).all()
    # of A: counts 2^0, 2^7, 2^7, 2^14 and reuses 2^0, 2^0, 2^7, 2^7 with an extra 0 each, ascending
    count, reuse = [0, 7, 7, 14], [0, 0, 7, 7]
    want = []
    for i in range(30):
        j = max(j for j in range(4) if i > count[j] - 1e-6)
        want += [reuse[j], i - count[j]]
    np.testing.assert_allclose(got[:60], want, atol=1e-6)


def test_loops_of_one_iteration_are_loops_and_move_nothing():
    a = te.placeholder((1, 8), name="A")
    b = te.compute((1, 8), lambda i, j: a[i, j] / 3.0, name="B")
    schedule = te.create_schedule(b.op)
    outer, _ = schedule[b].split(b.op.axis[1], factor=8)
    got = facts(schedule, [a, b])
    assert [f["length"] for f in got] == [1, 1, 8]
    assert [f["touch"]["A_0"][0] for f in got] == [0, 0, 1]
    assert (got[2]["div"], got[2]["mul"], outer.dom is None) == (1, 0, True)


def gpu_product(shared_axis):
    """A product in blocks of 8 x 8 threads that fetch a tile together; shared_axis: by the very thread axis of the product."""
    schedule, (a, b, c) = matmul(64)
    fetched = schedule.cache_read(a, "shared", [c])
    y, x = schedule[c].op.axis
    tx, ty = te.thread_axis("threadIdx.x"), te.thread_axis("threadIdx.y")
    by, y = schedule[c].split(y, factor=8)
    bx, x = schedule[c].split(x, factor=8)
    ko, ki = schedule[c].split(schedule[c].op.reduce_axis[0], factor=8)
    schedule[c].reorder(by, bx, y, x, ko, ki)
    for axis, thread in ((by, te.thread_axis("blockIdx.y")), (bx, te.thread_axis("blockIdx.x")), (y, ty), (x, tx)):
        schedule[c].bind(axis, thread)
    schedule[fetched].compute_at(schedule[c], ko)
    _, column = schedule[fetched].split(schedule[fetched].op.axis[1], factor=8)
    schedule[fetched].bind(column, tx if shared_axis else te.thread_axis("threadIdx.x"))
    return schedule, [a, b, c]


def test_threads_know_what_each_of_them_touches():
    got = facts(*gpu_product(False), "cuda")
    kinds = [f["kind"] for f in got]
    fetch = ["for", "for", "threadIdx.x"]  # rows, the one part of a column, its threads
    assert kinds == ["blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x", "for", *fetch, "for"]
    by, bx, ty, tx = got[:4]
    # B[k, x]: a thread of x reads 64 elements; the base of a block are its 8 x 8 threads
    assert tx["touch"]["B_0"][2:] == (512, 1, 8, 1)
    assert bx["touch"]["B_0"][2:4] == (8 * 8 * 64, 8) and bx["touch"]["B_0"][4] == 8 * 8 * 64 // (8 * 64)
    assert all(v >= 0 for f in got for t in f["touch"].values() for v in t[2:])


def test_a_thread_axis_that_is_bound_again_starts_a_new_record():
    one, two = facts(*gpu_product(False), "cuda"), facts(*gpu_product(True), "cuda")
    assert [f["kind"] for f in one] == [f["kind"] for f in two]
    # the first record of the axis was frozen when the second began: what was touched later is not in it
    assert "B_0" in one[3]["touch"] and "B_0" not in two[3]["touch"] and "B_0" in two[7]["touch"]


def test_a_virtual_thread_that_comes_again_is_passed_through():
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((64,), lambda i: b[i] + 1.0, name="C")
    schedule = te.create_schedule(c.op)
    virtual = te.thread_axis("vthread")
    for t in (b, c):
        outer, _ = schedule[t].split(t.op.axis[0], nparts=4)
        schedule[t].bind(outer, virtual)
    got = facts(schedule, [a, c], "cuda")
    assert [(f["kind"], f["nest"]) for f in got] == [("vthread", 1), ("for", 2), ("for", 1)]


def test_an_unknown_kind_of_features_is_refused():
    schedule, tensors = matmul(8)
    with pytest.raises(ValueError, match="kind: 'knobs' is none of itervar, curve"):
        _core.loop_vector(schedule._core, tensors, "llvm", "knobs")


# ---- knobs ----


def test_knobs_of_one_configuration_written_out():
    task = tuning_spaces.layer11_task()
    index = task.config_space.knob2point([7, 1, 2, 1, 2, 13])
    config = task.config_space.get(index)
    want = [*config["tile_co"].size, *config["tile_oh"].size, *config["tile_ow"].size, *range(7), 9, 7, 8]
    words = ["none", "vec", "unroll"]
    for w in [*config["ann_reduce"].anns, *config["ann_spatial"].anns]:
        want += [float(i == words.index(w)) for i in range(11)]
    assert row_of(task, config, "knob").tolist() == want
    assert _core.space_features(task.config_space._space, [index]).tolist() == [want]


@pytest.mark.parametrize("kind", ["itervar", "curve", "knob"])
def test_every_shipped_template_has_features(kind, monkeypatch):
    """Of every configuration that the reference's tasks of ResNet-18 list; knobs equal its numbers."""
    monkeypatch.setattr(autotvm.GLOBAL_SCOPE, "in_tuning", True)
    names = set()
    for network in json.loads(gzip.open(PEER).read()).values():
        for listed in network["tasks"]:
            task = autotvm.task.create(listed["name"], tuples(listed["args"]), network["target"])
            rows = Features(task, kind, FeatureCache()).rows([c["index"] for c in listed["configs"]])
            assert rows.any(axis=1).all() and np.isfinite(rows).all()
            if kind == "knob":
                np.testing.assert_array_equal(rows, np.array([c["flat"] for c in listed["configs"]], np.float32))
            names.add(listed["name"])
    assert len(names) >= 4


def tuples(x):
    return tuple(map(tuples, x)) if isinstance(x, list) else x


# ---- rows of a task ----


@autotvm.template("tests/tiles")
def tiles(n):
    """Programs with another number of loops for each value of knob ``depth``; one that cannot be made."""
    cfg = autotvm.get_config()
    cfg.define_knob("depth", [0, 1, 2, 99])
    cfg.define_split("tile", n, num_outputs=2)
    if cfg["depth"].val == 99:
        raise RuntimeError("no such depth")
    schedule, tensors = matmul(n)
    c = tensors[-1]
    axis = schedule[c].op.axis[1]
    for _ in range(cfg["depth"].val):
        _, axis = schedule[c].split(axis, cfg["tile"].size[-1])
    cfg.add_flop(2.0 * n**3)
    return schedule, tensors


@pytest.mark.parametrize("kind", ["itervar", "curve", "knob"])
def test_every_kind_of_feature_has_rows_of_one_width(kind):
    task = autotvm.task.create("tests/tiles", (16,), "llvm")
    features = Features(task, kind, FeatureCache())
    few = features.rows([0, 1])
    width = features.width
    every = np.arange(task.config_space.range_length)
    rows = features.rows(every)  # so many that processes of their own make them
    assert rows.shape == (len(every), features.width) and features.width >= width
    np.testing.assert_array_equal(rows[:2, :width], few)
    alone = Features(task, kind, FeatureCache())
    alone._workers = None
    np.testing.assert_array_equal(alone.rows(every), rows)
    if kind != "knob":
        assert features.failed == alone.failed == len(every) // 4
        assert not rows[every % 4 == 3].any() and rows[every % 4 != 3].any(axis=1).all()
        assert rows[4, features.width - 1] == 0 or kind == "curve"  # padded: it has fewer loops than others
    features.close()


def test_the_value_of_a_knob_follows_the_loops():
    task = autotvm.task.create("tests/tiles", (16,), "llvm")
    for depth in (0, 1, 2):
        assert row_of(task, task.config_space.get(depth), "itervar")[-1] == depth


def test_the_cache_of_features_is_emptied_when_it_is_full():
    task = autotvm.task.create("tests/tiles", (16,), "llvm")
    features = Features(task, "itervar", FeatureCache(size=4))
    for i in (0, 1, 2, 4, 5, 6):
        features.rows([i])
        assert len(features.cache.rows) <= 4


# ---- for models of one's own ----


def test_features_of_a_schedule_as_lists_and_as_numbers():
    from nestsmith.autotvm import feature

    schedule, tensors = matmul(128)
    got = feature.get_itervar_feature(schedule, tensors)
    assert [loop[0] for loop in got] == [["_itervar_", name] for name in TABLE]
    for k, (loop, (attributes, *touches)) in enumerate(zip(got, TABLE.values())):
        assert loop[1] == ["_attr_", *attributes, *(float(i == 9) for i in range(11))] and loop[2] == ["_arith_", k == 2, k == 2, 0]
        assert loop[3:] == [[n, *t, 0, 0] for n, t in zip(("A_0", "B_0", "C_0", "C_1"), [*touches, touches[-1]])]
    flat = feature.get_itervar_feature_flatten(schedule, tensors)
    np.testing.assert_array_equal(flat, _core.loop_vector(schedule._core, tensors, "llvm"))
    np.testing.assert_array_equal(feature.flatten_itervar_feature(feature.get_itervar_feature(schedule, tensors, take_log=True)), flat)
    plain = feature.get_itervar_feature_flatten(schedule, tensors, take_log=False)
    names = feature.get_flatten_name(got)
    assert plain.shape == flat.shape == (len(names),) and plain[names.index("f0.y._attr_.length")] == 128
    assert names[18:20] == ["f18.y.A_0.stride", "f19.y.A_0.mod"] and names[-1].endswith(".k.C_1.T_reuse")
    assert feature.get_buffer_curve_sample_flatten(schedule, tensors).shape == (720,)


def test_names_of_the_features_of_a_record():
    from nestsmith.autotvm import feature

    task = autotvm.task.create("tests/tiles", (16,), "llvm")
    inp = autotvm.MeasureInput(task.target, task, task.config_space.get(1))
    names = feature.get_flatten_name(autotvm.record.encode(inp, autotvm.MeasureResult((1.0,), 0, 1.0, 1.0)))
    assert len(names) + 1 == len(row_of(task, inp.config, "itervar"))  # and the knob's value
    with pytest.raises(ValueError, match="0.1"):
        feature.get_flatten_name('{"v": 0.1}')
