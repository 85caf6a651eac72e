"""te schedules: primitives, their errors, and the inferred bounds of typical programs."""

import pytest

from nestsmith import te
from nestsmith.te import InferBound


def bounds(s, tensor, index=None):
    """(min, extent) of the root axes of a tensor's stage, as numbers or text."""
    op = s[tensor].op
    found = InferBound(s)
    r = [found[a] for a in [*op.axis, *op.reduce_axis]]
    r = [tuple(int(v) if str(v).lstrip("-").isdigit() else str(v) for v in (x.min, x.extent)) for x in r]
    return r if index is None else r[index]


def chain(*shape, n=2):
    """A -> P -> Q, element-wise."""
    a = te.placeholder(shape, name="A")
    p = te.compute(shape, lambda *i: a[i] + 1.0, name="P")
    q = te.compute(shape, lambda *i: p[i] * 2.0, name="Q")
    return p, q, te.create_schedule(q.op)


def extents(s, *axes):
    found = InferBound(s)
    return [str(found[a].extent) for a in axes]


def test_attached_inside_a_symbolic_split():
    m, n = te.var("m"), te.var("l")
    p, q, s = chain(m, n)
    xo, _ = s[q].split(q.op.axis[0], factor=8)
    s[p].compute_at(s[q], xo)
    assert [b[1] for b in bounds(s, p)] == [8, "l"]


def test_attached_inside_a_symbolic_tile():
    p, q, s = chain(te.var("m"), te.var("l"))
    _, yo, _, _ = s[q].tile(*q.op.axis, 8, 8)
    s[p].compute_at(s[q], yo)
    assert [b[1] for b in bounds(s, p)] == [8, 8]


def test_thread_loops_are_relaxed_for_shared_memory():
    p, q, s = chain(te.var("m"), te.var("l"))
    x, y = q.op.axis
    xo, xi = s[q].split(x, factor=32)
    a, b = s[q].split(xi, nparts=16)
    s[q].bind(a, te.thread_axis("threadIdx.x"))
    yo, yi = s[q].split(y, factor=16)
    s[q].reorder(xo, a, yo, b, yi)
    s[p].set_scope("shared")
    s[p].compute_at(s[q], yo)
    assert [x[1] for x in bounds(s, p)] == [32, 16]


@pytest.mark.parametrize(("how", "outer", "inner"), [({"factor": 32}, "1", "8"), ({"nparts": 32}, "8", "1")])
def test_splits_larger_than_the_extent_are_tightened(how, outer, inner):
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i], name="B")
    s = te.create_schedule(b.op)
    assert extents(s, *s[b].split(b.op.axis[0], **how)) == [outer, inner]


def test_symbolic_multiples_divide():
    m = te.var("m")
    a = te.placeholder((m * 8,), name="A")
    b = te.compute((m * 8,), lambda i: a[i], name="B")
    s = te.create_schedule(b.op)
    o, i = s[b].split(b.op.axis[0], factor=8)
    assert extents(s, o, i) == ["m", "8"]


def test_attached_inside_a_split_fuse():
    p, q, s = chain(te.var("m"), 6)
    f = s[q].fuse(*q.op.axis)
    xo, _ = s[q].split(f, factor=3)
    s[p].compute_at(s[q], xo)
    outer = xo.var.name
    assert bounds(s, p) == [(f"floordiv({outer}, 2)", 1), (f"(floormod({outer}, 2)*3)", 3)]


def test_attached_inside_a_symbolic_split_of_a_fuse():
    m, n, k = te.var("m"), te.var("l"), te.var("s")
    p, q, s = chain(m, n)
    xo, _ = s[q].split(s[q].fuse(*q.op.axis), factor=k)
    s[p].compute_at(s[q], xo)
    rows, cols = bounds(s, p)
    assert cols == (0, "l")
    assert "floordiv" in rows[0] and rows[1].count("floordiv") == 2


def test_warp_memory_holds_what_all_lanes_need():
    p, q, s = chain(128, 128)
    x, y = q.op.axis
    xo, xi = s[q].split(x, factor=32)
    ty, tx = s[q].split(xi, factor=16)
    s[q].bind(ty, te.thread_axis("threadIdx.y"))
    s[q].bind(tx, te.thread_axis("threadIdx.x"))
    s[q].reorder(xo, ty, tx, y)
    s[p].set_scope("warp")
    s[p].compute_at(s[q], y)
    assert bounds(s, p, 0)[1] == 16


def test_stencils():
    a = te.placeholder((34,), name="A")
    p = te.compute((34,), lambda i: a[i] + 1.0, name="P")
    q = te.compute((32,), lambda i: p[i] + p[i + 1] + p[i + 2], name="Q")
    s = te.create_schedule(q.op)
    s[p].compute_at(s[q], q.op.axis[0])
    assert bounds(s, p) == [("i", 3)]
    a = te.placeholder((34, 34), name="A")
    p = te.compute((34, 34), lambda i, j: a[i, j] + 1.0, name="P")
    q = te.compute(
        (32, 32), lambda i, j: p[i, j + 1] + p[i + 1, j] + p[i + 1, j + 1] + p[i + 1, j + 2] + p[i + 2, j + 1], name="Q"
    )
    s = te.create_schedule(q.op)
    s[p].compute_at(s[q], q.op.axis[1])
    assert [x[1] for x in bounds(s, p)] == [3, 3]


def test_rfactor_of_a_scalar_reduction():
    a = te.placeholder((100,), name="A")
    k = te.reduce_axis((0, 100), name="k")
    b = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")
    s = te.create_schedule(b.op)
    ko, ki = s[b].split(s[b].op.reduce_axis[0], nparts=4)
    bf = s.rfactor(b, ko, 0)
    assert bf.op.name == "B.rf" and s[b].op.name == "B.repl"
    assert [x[1] for x in bounds(s, bf)][:2] == [4, 1]
    assert [a.var.name for a in s[b].op.reduce_axis] == ["k.outer.v"]


def test_scopes_decide_at_one_loop():
    m = te.var("m")
    a = te.placeholder((m,), name="A")
    p = te.compute((m,), lambda i: a[i] + 1.0, name="P")
    q = te.compute((m,), lambda i: p[i] + 1.0, name="Q")
    r = te.compute((m,), lambda i: q[i] + 1.0, name="R")
    s = te.create_schedule(r.op)
    thread = te.thread_axis("threadIdx.x")
    bx, tx = s[r].split(r.op.axis[0], factor=32)
    s[r].bind(bx, te.thread_axis("blockIdx.x"))
    s[r].bind(tx, thread)
    s[q].set_scope("shared")
    s[p].set_scope("local")
    s[q].compute_at(s[r], tx)
    _, xi = s[q].split(q.op.axis[0], nparts=1)
    s[q].bind(xi, thread)
    s[p].compute_at(s[r], tx)
    assert [bounds(s, t, 0)[1] for t in (p, q, r)] == [1, 32, "m"]


def gemm(n=1024):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return a, b, c, te.create_schedule(c.op)


def test_gpu_matrix_product():
    a, b, c, s = gemm()
    cl = s.cache_write(c, "local")
    caches = [s.cache_read(t, "shared", [cl]) for t in (a, b)]
    y, x = s[c].op.axis
    by, yi = s[c].split(y, factor=64)
    bx, xi = s[c].split(x, factor=64)
    ty, yi = s[c].split(yi, nparts=8)
    tx, xi = s[c].split(xi, nparts=8)
    s[c].reorder(by, bx, ty, tx, yi, xi)
    for axis, tag in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        s[c].bind(axis, te.thread_axis(tag))
    s[cl].compute_at(s[c], tx)
    (k,) = s[cl].op.reduce_axis
    s[cl].reorder(k, *s[cl].op.axis)
    for t in caches:
        s[t].compute_at(s[cl], k)
    assert [x[1] for x in bounds(s, caches[0])] == [64, 1]
    assert [x[1] for x in bounds(s, caches[1])] == [1, 64]
    assert [x[1] for x in bounds(s, cl)] == [8, 8, 1024]
    # threads of the copy stage are axes of their own kind: equal extents on one object are checked
    t = te.thread_axis("threadIdx.x")
    s[caches[0]].bind(s[caches[0]].op.axis[0], t)
    s[caches[1]].bind(s[caches[1]].op.axis[0], t)
    with pytest.raises(ValueError, match="same thread axis"):
        InferBound(s)


def test_strided_set_is_covered_by_an_interval():
    a = te.placeholder((128,), name="A")
    q = te.compute((128,), lambda i: a[i] + 1.0, name="Q")
    r = te.compute((128,), lambda i: q[i] + 2.0, name="R")
    s = te.create_schedule(r.op)
    aa = s.cache_read(a, "local", [q])
    tx = te.thread_axis("threadIdx.x")
    bx, i = s[r].split(r.op.axis[0], factor=128)
    ioc, i = s[r].split(i, factor=64)
    ob, t = s[r].split(i, factor=32)
    s[r].bind(bx, te.thread_axis("blockIdx.x"))
    s[r].bind(t, tx)
    s[r].reorder(bx, t, ioc, ob)
    s[q].set_scope("shared")
    s[q].compute_at(s[r], ioc)
    o, i = s[q].split(q.op.axis[0], factor=32)
    s[q].bind(i, tx)
    s[aa].compute_at(s[r], t)
    assert bounds(s, q, 0)[1] == 64
    assert bounds(s, aa, 0) == ("threadIdx.x", 97)


def test_forced_thread_extent_is_kept():
    p, q, s = chain(12)
    tx = te.thread_axis("threadIdx.x")
    o, i = s[q].split(q.op.axis[0], factor=3)
    s[q].bind(i, tx)
    s[p].set_scope("local")
    s[p].compute_at(s[q], i)
    po, pi = s[p].split(p.op.axis[0], factor=3)
    s[p].bind(pi, tx)
    assert bounds(s, p, 0)[1] == 1
    assert extents(s, po, pi) == ["1", "3"]


def test_attachment_errors():
    p, q, s = chain(8, 8)
    s[p].compute_at(s[p], p.op.axis[0])
    with pytest.raises(ValueError, match="cycle"):
        InferBound(s)
    s[p].compute_root()
    s[q].compute_at(s[p], p.op.axis[0])
    with pytest.raises(ValueError, match="is an output"):
        InferBound(s)
    s[q].compute_root()
    s[q].fuse(*q.op.axis)
    p, q, s = chain(8, 8)
    s[p].compute_at(s[q], q.op.axis[0])
    s[q].fuse(*q.op.axis)
    with pytest.raises(ValueError, match="no longer exists"):
        InferBound(s)


def test_attachments_follow_their_loop():
    p, q, s = chain(64, 32)
    i, j = q.op.axis
    s[p].compute_at(s[q], i)
    s[q].reorder(j, i)
    assert [b[1] for b in bounds(s, p)] == [1, 1]
    s[q].split(i, factor=8)
    assert s[p].attach_stage == s[q] and s[p].attach_type == 4
    assert [b[1] for b in bounds(s, p)] == [1, 1]


def test_names_and_errors_of_loop_primitives():
    _, _, c, s = gemm(64)
    i, j = c.op.axis
    (k,) = c.op.reduce_axis
    io, ii = s[c].split(i, 8)
    assert [a.var.name for a in (io, ii)] == ["i.outer", "i.inner"]
    f = s[c].fuse(ii, j)
    assert f.var.name == "i.inner.j.fused"
    assert [a.var.name for a in s[c].leaf_iter_vars] == ["i.outer", "i.inner.j.fused", "k"]
    with pytest.raises(ValueError, match="already been split"):
        s[c].split(i, 4)
    with pytest.raises(ValueError, match="not part of stage"):
        s[c].split(te.reduce_axis((0, 4), "z"), 2)
    with pytest.raises(ValueError, match="either factor or nparts"):
        s[c].split(k)
    with pytest.raises(ValueError, match="not positive"):
        s[c].split(k, 0)
    with pytest.raises(ValueError, match="not adjacent"):
        s[c].fuse(io, k)
    with pytest.raises(ValueError, match="twice"):
        s[c].reorder(k, k)
    with pytest.raises(ValueError, match="cannot be vectorized"):
        s[c].vectorize(k)
    with pytest.raises(ValueError, match="cannot be inlined"):
        s[c].compute_inline()
    with pytest.raises(ValueError, match="thread_axis"):
        s[c].bind(io, k)
    with pytest.raises(ValueError, match="not a reduction"):
        s.rfactor(c, io)
    with pytest.raises(ValueError, match="no stage"):
        s[te.placeholder((1,), name="Z")]
    with pytest.raises(TypeError):
        s[c].split("i", 2)


def test_cache_write_takes_the_layout_of_the_loops():
    a = te.placeholder((10, 8), name="A")
    b = te.compute((10, 8), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    i, j = b.op.axis
    jo, ji = s[b].split(j, factor=4)
    io, ii = s[b].split(i, factor=4)
    s[b].reorder(jo, io, ji, ii)
    c = s.cache_write(b, "global")
    assert c.op.name == "B.global"
    assert [int(x) for x in c.shape] == [2, 3, 4, 4]
    assert [x.var.name for x in c.op.axis] == ["j.outer.c", "i.outer.c", "j.inner.c", "i.inner.c"]
    assert str(s[b].op.body[0]) == "B.global[floordiv(j, 4), floordiv(i, 4), floormod(j, 4), floormod(i, 4)]"
    assert "select" in str(c.op.body[0]) and len(s[b].leaf_iter_vars) == 2


def test_iterators_may_share_a_name():
    a = te.placeholder((4, 4, 4), name="A")
    x, y = te.reduce_axis((0, 4)), te.reduce_axis((0, 4))
    b = te.compute((4,), lambda i: te.sum(a[i, x, y], axis=[x, y]), name="B")
    s = te.create_schedule(b.op)
    assert extents(s, *s[b].split(y, 2)) == ["2", "2"]


def test_a_narrowing_cast_in_an_index():
    """What is needed of P does not follow i: the cast to eight bits wraps around."""
    a = te.placeholder((256,), name="A")
    p = te.compute((256,), lambda i: a[i] * 2.0, name="P")
    q = te.compute((512,), lambda i: p[i.astype("int8").astype("int32") + 128], name="Q")
    s = te.create_schedule(q.op)
    s[p].compute_at(s[q], s[q].split(q.op.axis[0], factor=64)[0])
    assert bounds(s, p) == [(0, 256)]
