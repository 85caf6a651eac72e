"""te schedules executed: every schedule must compute what the plain loops compute, bit for bit on integers."""

import random

import numpy as np
import pytest

import nestsmith
from nestsmith import _core, te, topi
from nestsmith.auto_scheduler.compute_dag import ComputeDAG


def execute(s, args, target="c"):
    """Inputs and outputs of one run in the checking interpreter."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-5, 6, [int(x) for x in t.shape]).astype(t.dtype) for t in args]
    out = arrays[-1]
    out[...] = 99
    report = _core.interp(s._core.state(args), target, arrays)
    assert not report["findings"], report["findings"]
    return arrays[:-1], out


def matmul(n, m, k, dtype="int32"):
    a, b = te.placeholder((n, k), dtype, name="A"), te.placeholder((k, m), dtype, name="B")
    r = te.reduce_axis((0, k), name="k")
    free = {"layout_free_placeholders": [b]}
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C", attrs=free)
    return [a, b, c], c, te.create_schedule(c.op)


def check_product(s, args, target="c"):
    (a, b), c = execute(s, args, target)
    assert np.array_equal(c, a @ b)


def test_cache_write_in_the_layout_of_uneven_loops():
    args, c, s = matmul(13, 17, 19)
    io, ii = s[c].split(c.op.axis[0], 4)
    jo, ji = s[c].split(c.op.axis[1], nparts=5)
    s[c].reorder(jo, io, ji, ii)
    s.cache_write(c, "local")
    check_product(s, args)


@pytest.mark.parametrize(
    ("how", "pick", "pos"), [({"factor": 4}, 0, 1), ({"nparts": 4}, 1, -1), ({"factor": 19}, 0, 0)]
)
def test_rfactor(how, pick, pos):
    args, c, s = matmul(13, 17, 19)
    k = s[c].split(c.op.reduce_axis[0], **how)[pick]
    part = s.rfactor(c, k, pos)
    if pos == 1:
        s[part].compute_at(s[c], s[c].op.axis[0])
    else:
        s[part].fuse(*s[part].op.axis[:2])
    check_product(s, args)


def test_caches_attached_inside_a_split_fuse():
    args, c, s = matmul(13, 17, 19)
    local = s.cache_write(c, "global")
    fo, fi = s[c].split(s[c].fuse(*c.op.axis), 7)
    s[local].compute_at(s[c], fo)
    copy = s.cache_read(args[0], "global", [local])
    s[copy].compute_at(s[local], s[local].op.axis[0])
    s[c].vectorize(fi)
    check_product(s, args)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("between", [0, 2])
def test_a_cache_whose_readers_read_each_other(between, turned):
    x = te.placeholder((4, 8), "int32", name="x")
    a = last = te.compute((4, 8), lambda i, j: x[i, j] + 1, name="a")
    for _ in range(between):
        last = te.compute((4, 8), lambda i, j, p=last: p[i, j] * 2, name="m")
    b = te.compute((4, 8), lambda i, j: x[i, j] * last[i, j], name="b")
    c = te.compute((4, 8), lambda i, j: b[i, j] - x[i, j], name="c")
    s = te.create_schedule(c.op)
    s.cache_read(x, "global", [b, a] if turned else [a, b])
    (x,), c = execute(s, [x, c])
    assert np.array_equal(c, x * ((x + 1) << between) - x)


def test_uneven_gpu_tiles():
    args, c, s = matmul(37, 41, 23)
    local = s.cache_write(c, "local")
    caches = [s.cache_read(t, "shared", [local]) for t in args[:2]]
    y, x = c.op.axis
    by, yi = s[c].split(y, factor=16)
    bx, xi = s[c].split(x, factor=16)
    ty, yi = s[c].split(yi, nparts=4)
    tx, xi = s[c].split(xi, nparts=8)
    s[c].reorder(by, bx, ty, tx, yi, xi)
    threads = te.thread_axis("threadIdx.y"), te.thread_axis("threadIdx.x")
    blocks = te.thread_axis("blockIdx.y"), te.thread_axis("blockIdx.x")
    for axis, t in zip((by, bx, ty, tx), blocks + threads):
        s[c].bind(axis, t)
    s[local].compute_at(s[c], tx)
    ko, ki = s[local].split(s[local].op.reduce_axis[0], factor=4)
    s[local].reorder(ko, ki, *s[local].op.axis)
    for t in caches:
        s[t].compute_at(s[local], ko)
        f = s[t].fuse(*s[t].op.axis)
        o, i = s[t].split(f, factor=8)
        o, j = s[t].split(o, factor=4)
        s[t].bind(j, threads[0])
        s[t].bind(i, threads[1])
    check_product(s, args, "cuda")


@pytest.mark.parametrize("option", [0, 1, 2])
def test_layout_rewrite(option):
    args, c, _ = matmul(32, 48, 64)
    dag = ComputeDAG(args)
    st = dag.get_init_state()
    i = st.split(c, st[c].iters[0], [4])
    j = st.split(c, st[c].iters[2], [2, 8])
    k = st.split(c, st[c].iters[5], [8])
    st.reorder(c, [i[0], j[0], k[0], j[1], k[1], i[1], j[2]])
    st.parallel(c, i[0])
    st.vectorize(c, j[2])
    s, tensors = dag.apply_steps_from_state(st, layout_rewrite=option)
    assert ("auto_scheduler_layout_transform" in repr(s)) == (option == 1)
    (a, b), c = execute(s, tensors)
    if option == 2:
        assert b.shape == (3, 8, 2, 8, 8)
        b = b.transpose(1, 3, 0, 2, 4).reshape(64, 48)
    assert np.array_equal(c, a @ b)


def network():
    """Padding, a convolution, a broadcast sum and a row sum: windows, guards, reductions and several readers."""
    x = te.placeholder((9, 11), "int32", name="x")
    w = te.placeholder((3, 3), "int32", name="w")
    pad = te.compute(
        (11, 13),
        lambda i, j: te.if_then_else(
            te.all(i >= 1, i < 10, j >= 1, j < 12), x[i - 1, j - 1], te.const(0, "int32")
        ),
        name="pad",
    )
    r, q = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 3), name="q")
    conv = te.compute((9, 11), lambda i, j: te.sum(pad[i + r, j + q] * w[r, q], axis=[r, q]), name="conv")
    k = te.reduce_axis((0, 11), name="k")
    row = te.compute((9,), lambda i: te.sum(conv[i, k], axis=k), name="row")
    out = te.compute((9, 11), lambda i, j: conv[i, j] * 2 + row[i], name="out")
    return x, w, pad, conv, row, out


def expected(x, w):
    p = np.pad(x, 1)
    conv = sum(p[r : r + 9, q : q + 11] * w[r, q] for r in range(3) for q in range(3))
    return conv * 2 + conv.sum(1)[:, None]


def shuffle_loops(rng, s, t):
    """Random splits, fuses, reorders and annotations on one stage; returns the loops it may carry others at."""
    for _ in range(rng.randrange(4)):
        loops = s[t].leaf_iter_vars
        kind = rng.randrange(3)
        if kind == 0:
            how = {rng.choice(["factor", "nparts"]): rng.choice([2, 3, 4, 5, 16])}
            s[t].split(rng.choice(loops), **how)
        elif kind == 1 and len(loops) > 1:
            p = rng.randrange(len(loops) - 1)
            if loops[p].iter_type == loops[p + 1].iter_type:
                s[t].fuse(loops[p], loops[p + 1])
        else:
            picked = rng.sample(loops, min(len(loops), rng.randrange(1, 4)))
            s[t].reorder(*picked)
    loops = s[t].leaf_iter_vars
    if rng.random() < 0.3:
        s[t].unroll(rng.choice(loops))
    return loops


@pytest.mark.some(41)
@pytest.mark.parametrize("seed", range(60))
def test_random_schedules(seed):
    rng = random.Random(seed)
    x, w, pad, conv, row, out = network()
    s = te.create_schedule(out.op)
    stages = [conv, row]
    if rng.random() < 0.3:
        stages.append(s.cache_write(conv, rng.choice(["local", "global"])))
    if rng.random() < 0.3:
        stages.append(s.cache_read(x, "global", [pad]))
    if rng.random() < 0.3:
        k = s[row].split(s[row].op.reduce_axis[0], factor=rng.choice([2, 3]))[rng.randrange(2)]
        stages.append(s.rfactor(row, k, rng.choice([0, 1, -1])))
    at_out = shuffle_loops(rng, s, out)
    if rng.random() < 0.6:
        s[conv].compute_at(s[out], rng.choice(at_out))
        s[row].compute_at(s[out], at_out[0])
        if s[conv].attach_stage is not None:  # conv is read by row as well: both must enclose it
            s[conv].compute_root()
    for t in stages:
        loops = shuffle_loops(rng, s, t)
        if t is conv and rng.random() < 0.5:
            readers = [i for i in range(s._core.num_stages) if "conv" in s.stages[i].op.name]
            if len(readers) == 1:
                s[pad].compute_at(s[conv], rng.choice(loops))
    if s[pad].attach_type == 1 and rng.random() < 0.5:
        s[pad].compute_inline()
    else:
        shuffle_loops(rng, s, pad)
    (xv, wv), ov = execute(s, [x, w, out])
    assert np.array_equal(ov, expected(xv, wv)), s


def test_a_built_schedule_runs():
    args, c, s = matmul(33, 20, 47)
    s[c].parallel(s[c].split(c.op.axis[0], 8)[0])
    f = nestsmith.build(s, args, target="llvm")
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-9, 9, [int(x) for x in t.shape]).astype("int32") for t in args[:2])
    out = nestsmith.nd.array(np.zeros((33, 20), "int32"))
    f(nestsmith.nd.array(a), nestsmith.nd.array(b), out)
    assert np.array_equal(out.numpy(), a @ b)


@pytest.mark.parametrize("what", ["plain", "cache_write", "rfactor", "compute_at", "cross-thread"])
def test_reductions_over_pairs(what):
    x = te.placeholder((7, 33), "int32", name="x")
    y = topi.argmax(x, axis=1)
    s = te.create_schedule(y.op)
    t = y.op.input_tensors[0]
    (i,), (k,) = s[t].op.axis, s[t].op.reduce_axis
    if what == "cache_write":
        with pytest.raises(ValueError, match="all 2 outputs"):
            s.cache_write(t, "local")
        cache = s.cache_write([t.op.output(0), t.op.output(1)], "local")
        s[cache[0]].compute_at(s[t], s[t].op.axis[0])
    elif what == "rfactor":
        assert len(s.rfactor(t, s[t].split(k, 8)[0], 0)) == 2
    elif what == "compute_at":
        s[t].compute_at(s[y], y.op.axis[0])
    elif what == "cross-thread":
        s[t].bind(s[t].split(k, 8)[1], te.thread_axis("threadIdx.x"))
        s[t].bind(i, te.thread_axis("blockIdx.x"))
        s[y].bind(y.op.axis[0], te.thread_axis("blockIdx.x"))
    (xv,), out = execute(s, [x, y], "cuda" if what == "cross-thread" else "c")
    assert np.array_equal(out, xv.argmax(1))


def test_stages_without_loops():
    z = te.placeholder((5,), "int32", name="z")
    k = te.reduce_axis((0, 5), name="k")
    w = te.compute((), lambda: te.sum(z[k], axis=k), name="w")
    v = te.compute((), lambda: w() * 2, name="v")
    dag = ComputeDAG([z, v])
    st = dag.get_init_state()
    st.parallel(v, st.fuse(v, []))
    assert str(dag.infer_bound_from_state(st)) == "Placeholder: z\nfor k (0,5)\n  w = ...\nv = ...\n"
    assert "s[v].fuse()" in dag.print_python_code_from_state(st)
    s, tensors = dag.apply_steps_from_state(st)
    (zv,), out = execute(s, tensors)
    assert out == 2 * zv.sum()
