"""Steps beyond TVM's fourteen: what te asks for, in states, records and as Python text."""

import json
import re

import numpy as np
import pytest

from helpers import check_passes
from nestsmith import _core, te, tir
from nestsmith.auto_scheduler import ComputeDAG

TASK = ("[\"key\"]", "cuda -keys=cuda,gpu", (-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32), "", 0, [])


def record(steps, version="v0.6"):
    return _core.record_text(*TASK, json.dumps(steps), [1e-3], 0, 0.1, 1, version)


def replayed(s, args, target="c"):
    """The schedule made again from its steps; the programs of both are the same text."""
    t = te.create_schedule(s.outputs)
    t.apply_steps(s.steps())
    assert t.steps() == s.steps() and str(t) == str(s)
    texts = [_core.lower_text(x._core, "kernels", target, args=args) for x in (s, t)]
    assert texts[0] == texts[1]
    return texts[0]


def kinds(s):
    return [x[0] for x in json.loads(s.steps())]


# ---- expressions ----


def test_symbolic_factors():
    n, m = te.size_var("n"), te.var("m")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=te.max(te.floordiv(n, 4), 1))
    s[b].split(inner, nparts=m + 3)
    assert kinds(s) == ["VA", "SPX", "VA", "SPX"]
    assert json.loads(s.steps())[1] == ["SPX", 1, 0, 1, "max(floordiv($0, 4), 1)", [-1, 0]]
    text = str(s)
    t = te.create_schedule(b.op)
    t.apply_steps(s.steps())
    assert str(t) == text and t.steps() == s.steps()
    t[b].split(t[b].leaf_iter_vars[0], n)  # the same n, which the steps have brought already
    assert kinds(t)[4:] == ["SPX"]


def test_factors_of_other_types_are_kept():
    a = te.placeholder((te.const(64, "int64"),), name="A")
    b = te.compute((te.const(64, "int64"),), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].split(s[b].split(b.op.axis[0], te.const(16, "int64"))[1], 4)
    assert json.loads(s.steps())[0] == ["SPX", 1, 0, 1, "(int64)16", []] and kinds(s)[1] == "SP"
    assert "int64" in replayed(s, [a, b])


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (lambda s, b, a: b.op.axis[0].var < 5, "($0 < 5)"),
        (lambda s, b, a: tir.any(b.op.axis[0].var % 2 == 0, tir.Not(b.op.axis[1].var >= 3)), None),
        (lambda s, b, a: s[b].leaf_iter_vars[0].var * 4 + s[b].leaf_iter_vars[1].var < 7, None),
        (lambda s, b, a: a[b.op.axis[0], 0] > 0, "(A[$0, 0] > 0)"),
        (lambda s, b, a: te.floordiv(b.op.axis[0].var.astype("int64"), 2) != te.const(1, "int64"), None),
    ],
)
def test_conditions_of_stores(condition, text):
    a = te.placeholder((8, 6), "int32", name="A")
    b = te.compute((8, 6), lambda i, j: a[i, j] * 2, name="B")
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], factor=4)
    s[b].set_store_predicate(condition(s, b, a))
    assert kinds(s) == ["SP", "PD"]
    assert text is None or json.loads(s.steps())[1][2] == text
    assert "if (" in replayed(s, [a, b])


def test_a_condition_on_a_thread_axis_that_is_bound_later():
    a, k = te.placeholder((8, 32), "int32", name="A"), te.reduce_axis((0, 32), name="k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    tx = te.thread_axis("threadIdx.x", name="tx")
    s[b].set_store_predicate(tx.var.equal(0))
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    s[b].bind(b.op.reduce_axis[0], tx)
    assert kinds(s) == ["VA", "PD", "AN", "BI"]
    text = replayed(s, [a, b], "cuda")
    assert "tx" in text
    data = [np.ones((8, 32), "int32"), np.zeros(8, "int32")]
    assert check_passes(s._core, "cuda", data, [a, b]) == []


def test_what_is_no_step_is_refused():
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2.0, name="B")
    s = te.create_schedule(b.op)
    with pytest.raises(ValueError, match=r"the expression .* cannot be kept as a step"):
        s[b].set_store_predicate(a[b.op.axis[0]] > te.const(1 / 3, "float32"))
    assert s.steps() == "[]"


def test_a_step_that_fails_leaves_the_schedule_as_it_was():
    a = te.placeholder((8, 8), name="A")
    b, c, d = (te.compute((8, 8), f, name=n) for n, f in (
        ("B", lambda i, j: a[i, j] + 1.0), ("C", lambda i, j: a[i, j] * 2.0), ("D", lambda i, j: i.astype("float32"))))  # fmt: skip
    e = te.compute((8, 8), lambda i, j: b[i, j] + c[i, j] + d[i, j], name="E")
    s = te.create_schedule(e.op)
    s[e].split(e.op.axis[0], 2)
    before = s.steps(), str(s)
    with pytest.raises(ValueError, match="does not read"):
        s.cache_read(a, "global", [b, d])  # b is a reader, d is not
    with pytest.raises(ValueError, match=r"step 1 \(SP\)"):
        s.apply_steps('[["AN", 4, 0, 1], ["SP", 9, 0, 1, [2], 1]]')
    assert (s.steps(), str(s)) == before
    assert s[b].op == b.op, "it still reads A"


# ---- states of the auto-scheduler ----


def tiled(n=64):
    """A matrix product whose inputs are staged in shared memory."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    dag = ComputeDAG([a, b, c])
    s = dag.get_init_state()
    local = s.cache_write(c, "local")
    i, j = s[c].iters
    s.split(c, i, [4, 2])
    s.split(c, j, [4, 2])
    i0, i1, i2, j0, j1, j2 = s[c].iters
    s.reorder(c, [i0, j0, i1, j1, i2, j2])
    s.bind(c, s.fuse(c, s[c].iters[:2]), "blockIdx.x")
    s.bind(c, s.fuse(c, s[c].iters[1:3]), "threadIdx.x")
    s.compute_at(local, c, s[c].iters[1])
    x, y, k = s[local].iters
    s.split(local, k, [8])
    x, y, k0, k1 = s[local].iters
    s.reorder(local, [k0, x, y, k1])
    copies = []
    for t in (a, b):
        copy = s.cache_read(t, "shared", [local])
        s.compute_at(copy, local, s[local].iters[0])
        fused = s.fuse(copy, s[copy].iters)
        s.split(copy, fused, [16])
        s.bind(copy, s[copy].iters[1], "threadIdx.x")
        copies.append(copy)
    return dag, s, copies


@pytest.mark.some(1)
@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_the_auto_scheduler_double_buffers(target):
    dag, s, copies = tiled()
    plain = _core.lower_text(s.state_object, "kernels", target)
    before, text = s.copy(), str(s)
    for copy in copies:
        s.double_buffer(copy)
    core = s.state_object
    assert [x[0] for x in s.transform_steps][-2:] == ["DB", "DB"]
    assert s != before and str(before) == text and "A.shared double_buffer" in str(s)
    assert "double_buffer()" in core.python()
    kernels = _core.lower_text(core, "kernels", target)
    shared = [int(re.search(r" shared (\d+) ", x).group(1)) for x in (plain, kernels)]
    assert shared[1] == 2 * shared[0] > 0
    rng = np.random.default_rng(0)
    data = [rng.integers(-3, 4, (64, 64)).astype("float32") for _ in range(3)]
    assert check_passes(core, target, data) == []
    line = record(json.loads(core.steps()), "v0.6 stage=full n=3 sd=0.01")
    assert all(x[0] != "DB" for x in json.loads(line)["i"][1][1])
    steps = _core.record_parse(line)[6]
    assert steps == core.steps()
    assert _core.lower_text(_core.State(dag, steps), "kernels", target) == kernels
    plain_list = json.dumps(json.loads(line)["i"][1][1])
    assert _core.lower_text(_core.State(dag, plain_list), "kernels", target) == plain, "as other readers see it"
    assert _core.State(dag, steps).infer_bounds().copy().steps() == steps


def test_an_output_is_not_double_buffered():
    _, s, _ = tiled()
    with pytest.raises(ValueError, match="an output stage cannot be double buffered"):
        s.double_buffer(5)


def test_a_schedule_of_te_becomes_a_state():
    a = te.placeholder((8, 8), "int32", name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((8, 8), lambda i, j: b[i, j] * 2, name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], factor=2)
    s[b].compute_at(s[c], outer)
    s[c].reorder(s[c].leaf_iter_vars[1], outer)  # what is attached moves: no step of TVM's does it
    dag = ComputeDAG([a, c])
    state = dag.state_from_schedule(s)
    assert [x[0] for x in state.transform_steps] == ["SP", "CA", "REX"]
    assert _core.lower_text(state.state_object, "kernels") == _core.lower_text(s._core, "kernels", args=[a, c])
    sch, _ = dag.apply_steps_from_state(state)
    assert sch[c].leaf_iter_vars[0].var.name == "i.inner"
    with pytest.raises(ValueError, match=r"the schedule has 3 operations, the DAG 2"):
        ComputeDAG([a, b]).state_from_schedule(s)


# ---- records ----

OWN = [
    ["SP", 2, 0, 8, [2], 1],
    ["SC", 1, "local"],
    ["FSP", 1, 0, 0, 1],
    ["PRX", 2, 0, "some hint$1"],
    ["FFSP", 2, 2, [0], 0, 1],
    ["REX", 2, [1, 3, 4]],
    ["FSP", 1, 2, 0, 1],
    ["CA", 1, 2, 0],
]


def test_records_keep_the_plain_list():
    line = record(OWN, "v0.6 stage=quick n=2 sd=0.1")
    plain, v = json.loads(line)["i"][1][1], json.loads(line)["v"]
    assert plain == [OWN[0], OWN[2], ["FFSP", 2, 2, [0], 0, 1]]
    assert v.startswith("v0.6 steps=[[1,") and v.endswith("] stage=quick n=2 sd=0.1") and v.count(" ") == 4
    fields = _core.record_parse(line)
    assert json.loads(fields[6]) == OWN and fields[11] == "v0.6 stage=quick n=2 sd=0.1"
    assert _core.record_text(*fields) == line


def test_followers_name_the_steps_of_their_list():
    steps = [["SC", 1, "local"], ["SP", 2, 0, 8, [2], 1], ["DB", 1], ["FSP", 2, 2, 1, 1], ["FFSP", 1, 0, [1, 1], 0, 1]]
    line = record(steps)
    assert json.loads(line)["i"][1][1] == [steps[1], ["FSP", 2, 2, 0, 1], ["FFSP", 1, 0, [0, 0], 0, 1]]
    assert json.loads(_core.record_parse(line)[6]) == steps


def test_records_without_steps_of_ours_are_as_ever():
    assert json.loads(record(OWN[:1]))["v"] == "v0.6"
    odd = record(OWN[:1], "v0.6 cause=compile msg=what steps=[[0,1 means")
    assert _core.record_parse(odd)[11].endswith("msg=what steps=[[0,1 means")


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        ("[", r"v: an array of steps is expected"),
        ("{}", r"v: an array of steps is expected"),
        ('[["DB",1]]', r"v\[0\]: an integer is expected"),
        ('[[7,"DB",1]]', r"v\[0\]: the places of the steps have gaps"),
        ('[[0,"DB",1],[0,"DB",1]]', r"v\[1\]: the places of the steps have gaps"),
        ('[[0,"DB"]]', r"v\[0\]: wrong number of arguments"),
        ('[[0,"??",1]]', r"v\[0\]: unknown step mnemonic"),
        ('[[0,"DB",1e99]]', r"v\[0\]\[2\]: an integer is expected"),
        ('[[0,"PRX",2,0,"debug_skip_region"]]', r"v\[0\]\[4\]: debug_skip_region"),
    ],
)
def test_broken_marks_are_named(mark, why):
    line = json.loads(record(OWN[:1]))
    line["v"] = f"v0.6 steps={mark}"
    with pytest.raises(ValueError, match=f"malformed record: {why}"):
        _core.record_parse(json.dumps(line))


def test_the_list_of_a_record_holds_no_steps_of_ours():
    line = json.loads(record(OWN[:1]))
    line["i"][1][1].append(["DB", 1])
    with pytest.raises(ValueError, match=r"i\[1\]\[1\]\[1\]: unknown step mnemonic"):
        _core.record_parse(json.dumps(line))


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([["PD", 2, "($0 < 5)", [2]]], "pairs"),
        ([["PD", 2, "($0 < 5)", [2, 99]]], r"\$0 is at \(2, 99\)"),
        ([["PD", 2, "($0 < 5)", [-1, 0]]], r"\$0 is at \(-1, 0\)"),
        ([["PD", 2, "($0 < 5)", [9, 0]]], r"\$0 is at \(9, 0\)"),
        ([["PD", 2, "(x < 5)", [2, 0]]], "unknown variable"),
        ([["PD", 2, "($0 < 5", [2, 0]]], "cannot be read"),
        ([["PD", 2, "($0 + 5)", [2, 0]]], "is no condition"),
        ([["PD", 2, "(" * 4000, [2, 0]]], "too many parts within parts"),
        ([["PD", 2, "(X[$0] < 5)", [2, 0]]], "unknown tensor"),
        ([["PD", 2, "(tir.tvm_storage_sync($0) < 5)", [2, 0]]], "unknown function"),
        ([["SPX", 2, 0, 1, "floordiv(4, 0)", []]], "zero"),
        ([["SPX", 2, 0, 1, "($0 < 5)", [2, 0]]], "is no integer"),
        ([["SPX", 2, 0, 1, "0", []]], "not positive"),
        ([["SPX", 2, 0, 1, "$4611686018427387905", [2, 0]]], "unknown variable"),
        ([["SPX", 2, 0, 1, "($0 + 1)", [2, 1]]], "neither a number nor made of sizes"),
        ([["VA", 0, 32, 0, "__LINE__"], ["SPX", 2, 0, 1, "($0 + 1)", [-1, 0]]], "neither a number nor made of sizes"),
        ([["SPX", 2, 0, 1, "int32(tir.exp(5f))", []]], "neither a number nor made of sizes"),
        ([["SPX", 2, 0, 1, "A[0, 0]", []]], "neither a number nor made of sizes"),
        ([["SPX", 2, 0, 1, "A[0.5f, 0]", []]], "an index that is no integer"),
        ([["SPX", 2, 0, 1, "int32(!5)", []]], r"step 0 \(SPX\): .* types do not match"),
        ([["SPX", 2, 0, 0, "(int64)4294967296", []]], 'limit "split"'),
        ([["VA", 6, 32, 0, "t"], ["BI", 2, 0, 0, 6], ["BI", 2, 1, 0, 5]], "variable 0 is threadIdx.x"),
        ([["FUX", 2, [2**32, 1]]], "4294967296 in its list does not fit 32 bits"),
        ([["REX", 2, [2**32 + 1, 0]]], "4294967297 in its list does not fit 32 bits"),
        ([["BI", 2, 0, 0, 6]], "variable 0 is not one of the 0"),
        ([["BI", 2, 0, 0, 3]], "no kind of thread axis"),
        ([["VA", 3, 32, 0, "x"]], "no kind of thread axis"),
        ([["VA", 0, 7, 0, "x"]], "32 or 64 bits"),
        ([["FUX", 2, [0]]], "two loops or none"),
        ([["FUX", 2, [1, 0]]], "not adjacent"),
        ([["SP", 2, 0, 8, [2], 1], ["ANX", 2, 0, 1]], "already been split"),
        ([["REX", 2, [0, 0]]], "listed twice"),
        ([["ANX", 2, 0, 7]], "annotation code"),
        ([["SAX", 2, 9, 4, 0]], "no axis 9"),
        ([["SC", 2, "cloud"]], "memory scope"),
        ([["DB", 9]], "does not exist"),
    ],
)
def test_steps_that_do_not_fit(steps, why):
    a = te.placeholder((8, 8), "int32", name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((8, 8), lambda i, j: b[i, j] * 2, name="C")
    with pytest.raises(ValueError, match=why):
        _core.State(ComputeDAG([a, c]), json.dumps(steps))


@pytest.mark.parametrize(
    "steps",
    [
        [["CHW", 2, "global"], ["SA", 2, 0, 2**31 - 1, -(2**31)], ["SA", 2, 1, 2**31 - 1, -(2**31)]],
        [["CHW", 2, "global"], ["SAX", 2, 1, 2**31 - 1, 2**31 - 1]],
        [["SP", 2, 2, 64, [2**31 - 1], 1], ["RF", 2, 3, 0]],
    ],
)
def test_indices_of_temporaries_do_not_wrap_around(steps):
    """They would be outside of the memory that such a program allocates."""
    a, k = te.placeholder((64, 64), name="A"), te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * a[k, j], axis=k), name="C")
    state = _core.State(ComputeDAG([a, c]), json.dumps([[x[0], x[1] - 1, *x[2:]] for x in steps]))
    with pytest.raises(ValueError, match="too large: its indices do not fit 32 bits"):
        _core.program(state, None, "c", "main")


def test_a_candidate_computes_everything():
    """A stranger's record cannot leave a part of the result out."""
    a = te.placeholder((8,), "int32", name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    state = _core.State(ComputeDAG([a, b]), json.dumps([["PD", 1, "($0 < 5)", [1, 0]]]))
    with pytest.raises(ValueError, match=r"stage 1 \(B\) is stored under a condition"):
        _core.candidate_source(state, "c", 0)


# ---- steps for another task ----


def test_steps_travel_between_tails():
    """A product and one stage behind it; in the other task there are three, of which two are inlined."""
    steps = [["SC", 2, "local"], ["CHW", 2, "local"], ["SP", 3, 0, 8, [2], 1], ["FSP", 4, 0, 2, 1], ["CA", 3, 4, 0],
             ["CHR", 0, "shared", [2]], ["PD", 5, "($0 < 9)", [5, 0]], ["FFSP", 5, 2, [2], 0, 1]]  # fmt: skip
    got = json.loads(_core.carry_steps(json.dumps(steps), 4, 3, [3, 4, 5]))
    assert got == [["CI", 4], ["CI", 3], ["SC", 2, "local"], ["CHW", 2, "local"], ["SP", 3, 0, 8, [2], 1], ["FSP", 6, 0, 4, 1],
                   ["CA", 3, 6, 0], ["CHR", 0, "shared", [2]], ["PD", 7, "($0 < 9)", [7, 0]], ["FFSP", 7, 2, [4], 0, 1]]  # fmt: skip
    back = json.loads(_core.carry_steps(json.dumps(got), 6, 3, [3]))
    assert back == steps
    for wrong in ([["AN", 3, 0, 1]], [["CA", 2, 4, 0]], [["FSP", 2, 0, 0, 1]]):
        with pytest.raises(ValueError, match="has no counterpart"):
            _core.carry_steps(json.dumps(wrong), 6, 3, [3])
    for wide in (["FFSP", 5, 2, [2**32], 0, 1], ["PD", 5, "($0 < 9)", [2**32 + 5, 0]]):
        with pytest.raises(ValueError, match="in its list does not fit 32 bits"):
            _core.carry_steps(json.dumps([*steps[:6], wide]), 4, 3, [3, 4, 5])


# ---- Python text ----


def test_a_pragma_of_no_loop_has_no_text():
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2.0, name="B")
    for loop in (-1, 1):
        state = _core.State(ComputeDAG([a, b]), json.dumps([["PR", 1, loop, "auto_unroll_max_step$16"]]))
        assert "pragma" not in state.python()


def test_the_python_text_does_the_same():
    a, k = te.placeholder((16, 12), "int32", name="A"), te.reduce_axis((0, 12), name="k")
    b = te.compute((16, 12), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((16,), lambda i: te.sum(b[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    tx = te.thread_axis("threadIdx.x")
    x, t = s[c].split(c.op.axis[0], factor=4)
    s[c].bind(x, te.thread_axis("blockIdx.x"))
    s[c].bind(t, tx)
    s[b].set_scope("shared")
    s[b].compute_at(s[c], x)
    s[b].double_buffer()
    i, j = b.op.axis
    _, ji = s[b].split(s[b].fuse(i, j), factor=4)
    s[b].bind(ji, tx)
    s[b].storage_align(i, 4, 1)
    ko, ki = s[c].split(c.op.reduce_axis[0], te.const(3, "int64"))
    s[c].unroll(ki)
    s[c].pragma(ko, "auto_unroll_max_step", 16)
    s[c].reorder(s[c].fuse(), x)
    names = {"te": te, "A": a, "B": b, "C": c, "s": te.create_schedule(c.op)}
    text = s._core.python()
    exec(text.replace("(int64)3", "te.const(3, 'int64')"), names)  # noqa: S102 - our own text
    again = names["s"]
    assert again.steps() == s.steps(), text
    assert _core.lower_text(again._core, "kernels", "cuda", args=[a, c]) == replayed(s, [a, c], "cuda")


def test_what_a_stage_asked_for_outlives_its_renewal():
    """A stage that gets a cache or is factored is made anew."""
    a = te.placeholder((16, 16), name="A")
    k = te.reduce_axis((0, 16), name="k")
    b = te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((16,), lambda i: b[i] + 1, name="C")
    for renew in (lambda s: s.cache_write(b, "local"), lambda s: s.rfactor(b, s[b].op.reduce_axis[0])):
        s = te.create_schedule(c.op)
        s[b].double_buffer()
        s[b].set_scope("local")
        renew(s)
        assert re.search(r"^B(\.repl)? double_buffer\nB(\.repl)? scope: local$", str(s), re.M), str(s)
        s = te.create_schedule(c.op)
        s[b].set_store_predicate(b.op.axis[0] < 3)
        before = str(s)
        with pytest.raises(ValueError, match="condition.*afterwards"):
            renew(s)
        assert str(s) == before
