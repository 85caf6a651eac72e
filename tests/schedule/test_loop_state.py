"""The State class for users: stages and iterators as objects, methods that append steps."""

import pickle

import pytest

from nestsmith import auto_scheduler, te
from nestsmith.auto_scheduler.compute_dag import ComputeDAG
from nestsmith.auto_scheduler.loop_state import State


def matmul(n=512):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return a, b, c, ComputeDAG([a, b, c])


def names(iters):
    return [x.name for x in iters]


def test_splits_and_annotations():
    _, _, c, dag = matmul()
    s = dag.get_init_state()
    i, j, k = s[c].iters
    assert repr(i) == "i (0,512)" and s[c.op].op_type == 1 and s[0].op_type == 0
    parts = s.split(c, i, [4, 2])
    assert [x.range.extent for x in parts] == [64, 4, 2]
    assert s[c].iters[3] is j, "loops that a step does not touch stay the same objects"
    f = s.fuse(c, parts[:2])
    assert f.name == "i.0@i.1@" and f.range.extent == 256
    s.parallel(c, f)
    assert s[c].iters[0].annotation == State.ANNOTATION_TRANS_TABLE["parallel"]
    assert s.unroll(c, k, max_unroll=16) is k, "too long: nothing happens"
    s.reorder(c, [s[c].iters[0], j, k, parts[2]])
    s.vectorize(c, parts[2])
    s.pragma(c, j, "auto_unroll_max_step$16")
    s.split(c, k, [None])
    assert not s.concrete
    assert [x[0] for x in s.transform_steps] == ["SP", "FU", "AN", "RE", "AN", "PR", "SP"]
    with pytest.raises(ValueError, match="not an iterator"):
        s.unroll(c, i)


def test_caches_keep_keys_and_iterators():
    a, _, c, dag = matmul()
    s = dag.get_init_state()
    local = s.cache_write(c, "local")
    assert local.name == "C.local" and names(s[local].iters) == ["i_c", "j_c", "k"]
    i, j = s[c].iters
    s.compute_at(local, c, j)
    shared = s.cache_read(a, "shared", [local])
    assert [o.name for o in s.stage_ops] == ["A", "A.shared", "B", "C.local", "C"]
    assert s[c].iters[0] is i and names(s[shared].iters) == ["ax0", "ax1"]
    assert s[local].compute_at == 2 and s[local].iters[0].range is None
    bound = dag.infer_bound_from_state(s)
    assert [x.range.extent for x in bound[local].iters] == [1, 1, 512]
    assert str(bound[local].iters[0].range.min) == "i"
    assert 's.cache_read(A, "shared", [C_local])' in dag.print_python_code_from_state(s)
    part = dag.get_init_state()
    ko, ki = part.split(c, part[c].iters[2], [16])
    rf = part.rfactor(c, ko, 2)
    assert names(part[rf].iters) == ["i", "j", "k_o", "k_i"] and names(part[c].iters) == ["ax0", "ax1", "k_o_v"]


def test_copies_and_follow_steps():
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((64, 64), lambda i, j: b[i, j] * 2.0, name="C")
    dag = ComputeDAG([a, c])
    s = dag.get_init_state()
    s.split(b, s[b].iters[0], [2, 8])
    t = s.copy()
    assert t == s and t[b].iters[0] is s[b].iters[0]
    assert [x.range.extent for x in t.follow_split(c, t[c].iters[0], 0, 1)] == [4, 16]
    assert [x.range.extent for x in t.follow_fused_split(c, t[c].iters[2], [0], 1, True)] == [8, 8]
    assert t != s
    t.storage_align(b, t[b].iters[3], 32, 8)
    t.compute_inline(b)
    assert t[b].compute_at == 1
    t.compute_root(b)
    assert t[b].compute_at == 0
    s.bind(c, s[c].iters[0], "threadIdx.x")
    assert s[c].iters[0].annotation == 6
    with pytest.raises(ValueError, match="thread name"):
        s.bind(c, s[c].iters[1], "threadIdx.w")
    with pytest.raises(ValueError, match="no stage"):
        s[te.placeholder((1,), name="Z")]


def test_a_state_from_a_state():
    """As published rules make one: from a State or its state_object, which stay as they are; what was handed out earlier
    does not change with later steps."""
    _, _, c, dag = matmul()
    first = dag.get_init_state()
    i = first[c].iters[0]
    one = State(first, dag)
    one.split(c, i, [8])  # an iterator of the first is one of the second
    two = State(first.state_object, dag)
    two.fuse(c, two[c].iters[:2])
    early = two.state_object
    two.split(c, two[c].iters[0], [4])
    kinds = [[x[0] for x in s.transform_steps] for s in (first, one, two, State(early, dag))]
    assert kinds == [[], ["SP"], ["FU", "SP"], ["FU"]]
    first.parallel(c, i)
    assert [x[0] for x in first.transform_steps] == ["AN"] and [x[0] for x in one.transform_steps] == ["SP"]
    with pytest.raises(TypeError, match="state_object is a str; it must be a State"):
        State("x", dag)
    with pytest.raises(TypeError, match="dag is a list; it must be a ComputeDAG"):
        State(first, [c])
    with pytest.raises(TypeError, match="not iterable"):
        iter(first)


@auto_scheduler.register_workload
def pickled_matmul(n):
    a, b, c, _ = matmul(n)
    return [a, b, c]


def test_states_are_pickled():
    task = auto_scheduler.SearchTask(func=pickled_matmul, args=(64,), target="llvm")
    s = task.compute_dag.get_init_state()
    s.split(2, s[2].iters[0], [4, 2])
    s.parallel(2, s[2].iters[0])
    for state in (s, task.compute_dag.infer_bound_from_state(s)):
        again = pickle.loads(pickle.dumps(state))
        assert again == state and again.state_object.bounded == state.state_object.bounded
        again.unroll(2, again[2].iters[2])
        assert len(again.transform_steps) == len(state.transform_steps) + 1
    inp = pickle.loads(pickle.dumps(auto_scheduler.MeasureInput(task, s)))
    assert inp.state == s and repr(inp).endswith(", 2 steps)")
    s.split(2, s[2].iters[-1], [None])
    with pytest.raises(TypeError, match="open split lengths"):
        pickle.dumps(s)
    plain = matmul()[3].get_init_state()  # of tensors: the computation travels as a text
    assert str(pickle.loads(pickle.dumps(plain))) == str(plain)


def test_a_state_becomes_a_schedule():
    _, _, c, dag = matmul()
    s = dag.get_init_state()
    i = s.split(c, s[c].iters[0], [8])[0]
    s.parallel(c, i)
    sch, tensors = dag.apply_steps_from_state(s)
    assert [t.name for t in tensors] == ["A", "B", "C"]
    assert [x.var.name for x in sch[tensors[2]].leaf_iter_vars] == ["i.outer", "i.inner", "j", "k"]
    xo, _ = sch[tensors[2]].split(sch[tensors[2]].leaf_iter_vars[1], factor=2)
    assert xo.var.name == "i.inner.outer"


def layout_free_matmul(n=512):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    free = {"layout_free_placeholders": [b]}
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C", attrs=free)
    return a, b, c, ComputeDAG([a, b, c])


def tiled(dag, c):
    s = dag.get_init_state()
    i = s.split(c, s[c].iters[0], [4, 8, 8])
    j = s.split(c, s[c].iters[4], [8, 4, 4])
    k = s[c].iters[8]
    s.reorder(c, [i[0], j[0], i[1], j[1], i[2], j[2], i[3], j[3], k])
    return s


def test_layout_rewrite_for_pre_transformed_inputs():
    _, _, c, dag = layout_free_matmul()
    s = tiled(dag, c)
    new = dag.rewrite_layout_from_state(s)
    b, out = new.tensors[1], new.tensors[2]
    assert [int(x) for x in b.shape] == [4, 8, 4, 4, 512] and b.name == "B"
    assert "B[floormod(floordiv(j, 128), 4), floormod(floordiv(j, 16), 8), floormod(floordiv(j, 4), 4), " in str(new)
    assert out.op.attrs["ori_placeholder_layout"] == "512k512j"
    assert out.op.attrs["new_placeholder_layout"] == "4j8j4j4j512k"
    sch, tensors = dag.apply_steps_from_state(s, layout_rewrite=2)
    assert [int(x) for x in tensors[1].shape] == [4, 8, 4, 4, 512] and len(sch.stages) == 3


def test_layout_rewrite_with_a_transform_stage():
    _, _, c, dag = layout_free_matmul()
    s = tiled(dag, c)
    s.cache_read(0, "global", [2])
    sch, tensors = dag.apply_steps_from_state(s, layout_rewrite=1)
    assert [t.name for t in tensors] == ["A", "B", "C"]
    assert [x.op.name for x in sch.stages] == ["A", "A.global", "B", "auto_scheduler_layout_transform", "C"]
    assert [x.var.name for x in sch.stages[3].leaf_iter_vars][:1] == ["i0.i1.fused.i2.fused"]
    text = str(sch.stages[3].op.body[0])
    assert text == "B[i4, ((i0*128) + ((i1*16) + ((i2*4) + i3)))]"


def test_layout_rewrite_leaves_cached_inputs_alone():
    _, _, c, dag = layout_free_matmul()
    s = tiled(dag, c)
    s.cache_read(1, "global", [2])
    assert [int(x) for x in dag.rewrite_layout_from_state(s).tensors[1].shape] == [512, 512]
