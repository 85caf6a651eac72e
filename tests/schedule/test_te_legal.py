"""te schedules that once gave wrong numbers: each is right now, or refused with stage, loop and remedy."""

import json

import numpy as np
import pytest

import nestsmith as ns
from helpers import check_passes
from nestsmith import _core, te, tir
from nestsmith.driver import engine_of


def arrays(args):
    rng = np.random.default_rng(0)
    return [rng.integers(1, 5, [int(n) for n in t.shape]).astype(t.dtype) for t in args]


def findings(s, args, target="c"):
    """Of every pass, against the definitions; ValueError if the schedule is refused."""
    return check_passes(s._core, target, arrays(args), args)


def run(s, args, outputs):
    """Arrays of the outputs after running the compiled program on a CPU; they are filled with 77 before."""
    data = [ns.nd.array(np.full_like(x, 77) if t in outputs else x) for t, x in zip(args, arrays(args))]
    ns.build(s, args, "llvm")(*data)
    return [x.numpy() for t, x in zip(args, data) if t in outputs]


def rows(n=4, m=6, dtype="int32"):
    """Sums over rows."""
    a, k = te.placeholder((n, m), dtype, name="A"), te.reduce_axis((0, m), name="k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    return a, b, te.create_schedule(b.op)


def chain(n=12, read=lambda b, i: b[i] * 2, m=None):
    """A -> B -> C."""
    a = te.placeholder((n,), "int32", name="A")
    b = te.compute((n,), lambda i: a[i] + 1, name="B")
    c = te.compute((m or n,), lambda i: read(b, i), name="C")
    return a, b, c, te.create_schedule(c.op)


def sums(n=10, m=3):
    """A -> B, sums over rows -> C."""
    a, k = te.placeholder((n, m), "int32", name="A"), te.reduce_axis((0, m), name="k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((n,), lambda i: b[i] * 2, name="C")
    return a, b, c, te.create_schedule(c.op)


def bind(s, t, axis, tag):
    s[t].bind(axis, te.thread_axis(tag))


def spread(s, t, axis, threads, tag="threadIdx.x"):
    """The axis of a stage inside another one: its region does not start at 0, so that it is split before it is bound."""
    bind(s, t, s[t].split(axis, factor=threads)[1], tag)


def argmax():
    def larger(x, y):
        first = tir.any(x[1] > y[1], tir.all(x[1] == y[1], x[0] <= y[0]))
        return tir.Select(first, x[0], y[0]), tir.Select(first, x[1], y[1])

    return te.comm_reducer(larger, lambda i, v: (te.max_value(i), te.min_value(v)), name="argmax")


# ---- loops that mix data and reduction axes ----


def test_unrolled_loop_over_reduction_and_data():
    """Each accumulator was kept in as many registers as the mixed loop has iterations; the last one won."""
    a, b = te.placeholder((4, 3), "int32", name="A"), te.placeholder((5,), "int32", name="B")
    k, r = te.reduce_axis((0, 3), name="k"), te.reduce_axis((0, 5), name="r")
    c = te.compute((4,), lambda i: te.sum(a[i, k] * b[r], axis=[k, r]), name="C")
    s = te.create_schedule(c.op)
    s[c].reorder(r, k, c.op.axis[0])
    s[c].unroll(s[c].fuse(k, c.op.axis[0]))
    assert findings(s, [a, b, c]) == []
    (got,) = run(s, [a, b, c], [c])
    x, y, _ = arrays([a, b, c])
    np.testing.assert_array_equal(got, x.sum(1) * y.sum())


@pytest.mark.parametrize("mixed", [False, True])
def test_parallel_reductions_are_refused(mixed):
    a, b, s = rows()
    k = b.op.reduce_axis[0]
    loop = s[b].fuse(b.op.axis[0], k) if mixed else k
    s[b].parallel(loop)
    with pytest.raises(ValueError, match=rf"stage B: loop {loop.var.name} is parallel .* reduction axis.*rfactor"):
        findings(s, [a, b])
    with pytest.raises(ValueError, match="stage B: loop"):
        ns.build(s, [a, b], "llvm")


def test_a_parallel_loop_of_one_iteration_is_no_race():
    a, b, s = rows()
    _, inner = s[b].split(b.op.reduce_axis[0], factor=1)
    s[b].parallel(inner)
    assert findings(s, [a, b]) == []


def test_mixed_loops_across_threads_are_refused():
    a, b, s = rows()
    f = s[b].fuse(b.op.axis[0], b.op.reduce_axis[0])
    bind(s, b, f, "threadIdx.x")
    with pytest.raises(ValueError, match=r"stage B: loop i.k.fused \(threadIdx.x\) mixes data and reduction axes"):
        findings(s, [a, b], "cuda")


def test_fusing_with_a_loop_of_extent_one_keeps_the_kind():
    a, b, _, s = chain()
    one = s[b].fuse()
    s[b].vectorize(one)
    c = s.cache_write(b, "local")
    f = s[c].fuse(s[c].fuse(), s[c].op.axis[0])
    s[c].vectorize(f)
    assert f.iter_type == 0
    assert len(c.shape) == 2  # the loop of one iteration is a dimension, as in the reference


# ---- intermediate results among the arguments ----


def test_initial_values_stay_inside_an_argument():
    """The last tile sticks out over the tensor: its initial values were written behind the end of the array."""
    a, b, c, s = sums(10)
    s[b].compute_at(s[c], s[c].split(c.op.axis[0], factor=4)[0])
    assert findings(s, [a, b, c]) == []


def test_an_argument_at_root_is_computed_as_a_whole():
    """Its reader needs six of twelve elements."""
    a, b, c, s = chain(12, m=6)
    assert findings(s, [a, b, c]) == []
    got = run(s, [a, b, c], [b, c])
    np.testing.assert_array_equal(got[0], arrays([a])[0] + 1)


@pytest.mark.parametrize(
    ("read", "m"), [(lambda b, i: b[i], 6), (lambda b, i: b[i * 2], 6), (lambda b, i: b[te.min(i, 3)], 12)]
)
def test_an_argument_of_which_a_part_is_computed_is_refused(read, m):
    a, b, c, s = chain(12, read, m)
    s[b].compute_at(s[c], c.op.axis[0])
    assert findings(s, [a, c]) == []
    with pytest.raises(ValueError, match=r"stage B is an argument.*does not need all.*compute_root\(\)"):
        findings(s, [a, b, c])


def test_an_inlined_argument_is_refused_but_printed():
    a, b, c, s = chain()
    s[b].compute_inline()
    assert findings(s, [a, c]) == []
    assert "C_2" in str(ns.lower(s, [a, b, c]))
    with pytest.raises(ValueError, match=r"stage B is an argument, but inlined.*compute_root\(\)"):
        findings(s, [a, b, c])


@pytest.mark.parametrize("read", ["apart", "overlapping"])
def test_sums_that_parallel_iterations_share_are_refused(read):
    a, k = te.placeholder((9, 3), "int32", name="A"), te.reduce_axis((0, 3), name="k")
    b = te.compute((9,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((9,) if read == "apart" else (8,), lambda i: b[i] if read == "apart" else b[i] + b[i + 1], name="C")
    s = te.create_schedule(c.op)
    s[c].parallel(c.op.axis[0])
    s[b].compute_at(s[c], c.op.axis[0])
    assert findings(s, [a, c]) == []
    if read == "apart":
        assert findings(s, [a, b, c]) == []
        return
    with pytest.raises(ValueError, match=r"stage B is an argument and computed inside loop i \(parallel\)"):
        findings(s, [a, b, c])


# ---- set_store_predicate, double_buffer, unrolling ----


def test_the_store_predicate_is_obeyed():
    a, b, s = rows(8)
    s[b].set_store_predicate(b.op.axis[0].var < 5)
    assert "if (i < 5)" in str(ns.lower(s, [a, b]))
    c = te.compute((8,), lambda i: a[i, 0] + 1, name="C")
    s = te.create_schedule(c.op)
    s[c].set_store_predicate(c.op.axis[0].var < 5)
    (got,) = run(s, [a, c], [c])
    np.testing.assert_array_equal(got, np.where(np.arange(8) < 5, arrays([a])[0][:, 0] + 1, 77))


def test_store_predicates_that_cannot_be_are_refused():
    a, b, s = rows()
    for wrong in (3, b.op.axis[0].var, "x"):
        with pytest.raises(TypeError):
            s[b].set_store_predicate(wrong)
    s[b].set_store_predicate(te.var("elsewhere") < 3)
    with pytest.raises(ValueError, match="stage B: its store predicate uses elsewhere"):
        findings(s, [a, b])
    c, d = (te.compute((4,), lambda i: f(a[i, 0]), name=n) for f, n in ((lambda x: x * 2, "C"), (lambda x: x - 1, "D")))
    e = te.compute((4,), lambda i: c[i] + d[i], name="E")
    s = te.create_schedule(e.op)
    s[c].compute_at(s[e], e.op.axis[0])
    s[d].set_store_predicate(c[d.op.axis[0]] > 3)  # C is not there yet
    with pytest.raises(ValueError, match="stage D: its store predicate reads tensor C, which the stage itself does not"):
        findings(s, [a, e])


def test_double_buffers_of_several_outputs_stay_together():
    a = te.placeholder((8, 4), "int32", name="A")
    b, c = te.compute((8, 4), lambda i, j: (a[i, j] + 1, a[i, j] * 2), name="B")
    d = te.compute((8, 4), lambda i, j: b[i, 3 - j] + c[i, j], name="D")
    s = te.create_schedule(d.op)
    s[b].compute_at(s[d], d.op.axis[0])
    s[b].double_buffer()
    assert findings(s, [a, d]) == []
    run(s, [a, d], [d])


def sum_of_tiles(steps, unroll=0):
    """(schedule, tensors): a tile of 32 numbers is fetched in each of so many steps, ahead."""
    a, k = te.placeholder((steps, 64), "int32", name="A"), te.reduce_axis((0, steps), name="k")
    b = te.compute((64,), lambda i: te.sum(a[k, 63 - i], axis=k), name="B")
    s = te.create_schedule(b.op)
    tile, part = s.cache_read(a, "shared", [b]), s.cache_write(b, "local")
    o, i = s[b].split(s[b].op.axis[0], factor=32)
    bind(s, b, o, "blockIdx.x")
    bind(s, b, i, "threadIdx.x")
    s[part].compute_at(s[b], i)
    (k,) = s[part].op.reduce_axis
    s[part].reorder(k, *s[part].op.axis)
    s[part].pragma(k, "auto_unroll_max_step", unroll)
    s[part].pragma(k, "unroll_explicit", 1)
    s[tile].compute_at(s[part], k)
    s[tile].double_buffer()
    spread(s, tile, s[tile].op.axis[1], 32)
    return s, [a, b]


@pytest.mark.parametrize(("steps", "unroll"), [(2, 0), (3, 0), (4, 0), (2, 64), (3, 64), (4, 64)])
def test_barriers_of_double_buffers_whose_loop_is_unrolled(steps, unroll):
    """Side by side, iterations have no mark that says which half they fill."""
    assert findings(*sum_of_tiles(steps, unroll), "cuda") == []


@pytest.mark.parametrize(("steps", "copies"), [(1, 1), (2, 2), (3, 2)])
def test_what_double_buffers_take_counts_where_limits_are_checked(steps, copies):
    s, tensors = sum_of_tiles(steps)
    manifest = json.loads(_core.program(s._core, tensors, ns.target.Target("cuda -arch=sm_90").engine(), "f")[1])
    told = _core.gpu_check(s._core.state(tensors), "cuda")["shared_bytes"]
    assert told == manifest["kernels"][0]["shared_bytes"] == 4 * 32 * copies
    little = ns.target.Target(f"cuda -arch=sm_90 -max_shared_memory_per_block={4 * 32}")
    if copies == 1:
        _core.program(s._core, tensors, engine_of(little), "f")
    else:
        with pytest.raises(ValueError, match="cannot run on this GPU: shared memory"):
            _core.program(s._core, tensors, engine_of(little), "f")


def test_copies_of_an_unrolled_body_allocate_their_own_array():
    a = te.placeholder((1, 2), "int32", name="A")
    b = te.compute((2, 2), lambda i, j: tir.Select(i >= 1, a[i - 1, j], te.const(0, "int32")), name="B")
    s = te.create_schedule(b.op)
    s[b].unroll(b.op.axis[0])
    c = s.cache_read(a, "global", [b])
    s[c].compute_at(s[b], s[b].op.axis[0])
    (got,) = run(s, [a, b], [b])
    np.testing.assert_array_equal(got, np.vstack([np.zeros((1, 2)), arrays([a])[0]]))


# ---- GPU: who fills which memory ----


def two_kernels(**how):
    a, b, c, s = sums(**how)
    bind(s, c, c.op.axis[0], "blockIdx.x")
    return a, b, c, s


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_memory_of_a_kernel_does_not_outlive_it(scope):
    a, b, c, s = two_kernels()
    s[b].set_scope(scope)
    with pytest.raises(ValueError, match=rf"stage B is computed at root.*{scope} memory lasts no longer.*compute_at"):
        findings(s, [a, c], "cuda")


def test_warp_memory_is_refused():
    a, b, c, s = two_kernels()
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].set_scope("warp")
    with pytest.raises(ValueError, match="stage B: memory scope 'warp' is not supported"):
        findings(s, [a, c], "cuda")


def test_global_memory_inside_a_kernel_is_refused():
    a, b, c, s = sums(12)
    o, i = s[c].split(c.op.axis[0], factor=4)
    bind(s, c, o, "blockIdx.x")
    bind(s, c, i, "threadIdx.x")
    s[b].compute_at(s[c], i)
    assert findings(s, [a, c], "cuda") == []
    s[b].set_scope("global")
    with pytest.raises(ValueError, match=r"stage B is computed inside a kernel in global memory.*set_scope\(.shared.\)"):
        findings(s, [a, c], "cuda")


def test_private_memory_is_filled_by_its_own_thread():
    """Bound to threads, the loops of a private copy leave each thread a part of it."""
    a = te.placeholder((4, 8), "int32", name="A")
    b = te.compute((4, 8), lambda i, j: a[i, 7 - j], name="B")
    s = te.create_schedule(b.op)
    cache = s.cache_read(a, "local", [b])
    bind(s, b, b.op.axis[0], "threadIdx.y")
    s[cache].compute_at(s[b], b.op.axis[0])
    assert findings(s, [a, b], "cuda") == []
    _, i = s[cache].split(s[cache].op.axis[1], factor=4)
    bind(s, cache, i, "threadIdx.x")
    with pytest.raises(ValueError, match=r"stage A.local: each thread has local memory.*ax1.inner is bound to threadIdx.x"):
        findings(s, [a, b], "cuda")
    s[cache].set_scope("shared")
    assert findings(s, [a, b], "cuda") == []


def test_private_memory_is_filled_where_the_thread_is_known():
    a, b, c, s = sums(12)
    o, i = s[c].split(c.op.axis[0], factor=4)
    bind(s, c, o, "blockIdx.x")
    bind(s, c, i, "threadIdx.x")
    s[b].set_scope("local")
    s[b].compute_at(s[c], o)
    with pytest.raises(ValueError, match="stage B: each thread has memory of its own.*outside of loop i.inner of stage C"):
        findings(s, [a, c], "cuda")
    s[b].compute_at(s[c], i)
    assert findings(s, [a, c], "cuda") == []


def test_sums_in_shared_memory_are_spread_over_the_threads():
    a, b, c, s = sums(12)
    o, i = s[c].split(c.op.axis[0], factor=4)
    bind(s, c, o, "blockIdx.x")
    bind(s, c, i, "threadIdx.x")
    s[b].set_scope("shared")
    s[b].compute_at(s[c], o)
    with pytest.raises(ValueError, match=r"stage B: all threads of threadIdx.x would add.*bind one \(extent 4\)"):
        findings(s, [a, c], "cuda")
    spread(s, b, b.op.axis[0], 4)
    assert findings(s, [a, c], "cuda") == []


def test_sums_of_an_output_are_spread_over_all_threads_of_the_kernel():
    a, b, s = rows(4, 8)
    cache = s.cache_read(a, "shared", [b])
    bind(s, b, b.op.axis[0], "blockIdx.x")
    s[cache].compute_at(s[b], b.op.axis[0])
    bind(s, cache, s[cache].op.axis[1], "threadIdx.x")
    with pytest.raises(ValueError, match="stage B: all threads of threadIdx.x would add to the same elements in global"):
        findings(s, [a, b], "cuda")


def test_one_thread_axis_indexes_one_loop():
    a = te.placeholder((4, 4), "int32", name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] + 1, name="B")
    s = te.create_schedule(b.op)
    for axis in b.op.axis:
        bind(s, b, axis, "threadIdx.x")
    with pytest.raises(ValueError, match="stage B: the loops i and j are both bound to threadIdx.x"):
        findings(s, [a, b], "cuda")


def test_arguments_filled_by_several_threads_are_refused():
    a, b, c, s = chain(8)
    o, i = s[c].split(c.op.axis[0], factor=4)
    bind(s, c, o, "blockIdx.x")
    bind(s, c, i, "threadIdx.x")
    s[b].compute_at(s[c], o)
    spread(s, b, b.op.axis[0], 4)
    assert findings(s, [a, c], "cuda") == []
    with pytest.raises(ValueError, match="stage B is an argument and computed inside a kernel with loop i.inner bound"):
        findings(s, [a, b, c], "cuda")


# ---- GPU: programs that were lowered wrongly ----


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_kernels_without_blocks_keep_their_shared_arrays(target):
    a, b, c, s = chain(8, lambda b, i: b[7 - i])
    bind(s, c, c.op.axis[0], "threadIdx.x")
    s[b].set_scope("shared")
    s[b].compute_at(s[c], c.op.axis[0])
    bind(s, b, b.op.axis[0], "threadIdx.x")
    assert findings(s, [a, c], target) == []
    assert "alloc B: int32[8] shared" in _core.lower_text(s._core, "kernels", target, args=[a, c])


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_reductions_across_threads_of_each_virtual_thread(target):
    a, b, s = rows(6, 8)
    bind(s, b, b.op.axis[0], "vthread")
    bind(s, b, s[b].fuse(), "blockIdx.x")
    bind(s, b, b.op.reduce_axis[0], "threadIdx.x")
    assert findings(s, [a, b], target) == []


def test_what_is_attached_between_the_loops_of_a_reduction_across_threads():
    a, b, s = rows(4, 12)
    part = s.rfactor(b, s[b].split(b.op.reduce_axis[0], factor=6)[1])
    bind(s, b, s[b].op.axis[0], "blockIdx.x")
    _, i = s[b].split(s[b].op.reduce_axis[0], factor=3)
    bind(s, b, i, "threadIdx.x")
    s[part].compute_at(s[b], i)
    assert findings(s, [a, b], "cuda") == []


def test_elements_that_threads_share_change_behind_a_barrier():
    """All threads write one element per iteration and read it; the next value must wait for the slowest reader."""
    a = te.placeholder((8,), "int32", name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    c = te.compute((8, 4), lambda i, j: b[i] * j, name="C")
    s = te.create_schedule(c.op)
    s[c].reorder(c.op.axis[1], c.op.axis[0])
    bind(s, c, c.op.axis[1], "threadIdx.x")
    bind(s, c, s[c].fuse(), "blockIdx.x")
    s[b].set_scope("shared")
    s[b].compute_at(s[c], c.op.axis[0])
    assert findings(s, [a, c], "cuda") == []


def test_regions_of_private_memory_without_a_dimension_along_threads():
    """The index along the thread is 0 in memory that is private to it, so that is what its own inputs are read at."""
    a, b, c, s = chain(12)
    cache = s.cache_write(c, "local")
    s[c].split(s[c].op.axis[0], factor=3)
    bind(s, c, s[c].leaf_iter_vars[0], "threadIdx.x")
    s[cache].compute_at(s[c], s[c].leaf_iter_vars[1])
    s[cache].split(s[cache].op.axis[0], nparts=2)
    bind(s, cache, s[cache].leaf_iter_vars[0], "threadIdx.y")
    s[b].compute_at(s[cache], s[cache].leaf_iter_vars[1])
    assert findings(s, [a, c], "cuda") == []


def test_arg_max_under_random_loops():
    a, k = te.placeholder((4, 9), "int32", name="A"), te.reduce_axis((0, 9), name="k")
    reducer = argmax()
    i0, i1 = te.compute((4,), lambda i: reducer((k, a[i, k]), axis=k), name="T")
    s = te.create_schedule(i0.op)
    o, i = s[i0].split(k, factor=4)
    s[i0].reorder(o, i0.op.axis[0], i)
    s[i0].fuse(o, i0.op.axis[0])
    assert findings(s, [a, i0, i1]) == []


# ---- initial values of reductions ----


def from_a_tensor():
    a, u = te.placeholder((4, 6), "int32", name="A"), te.placeholder((4,), "int32", name="U")
    k = te.reduce_axis((0, 6), name="k")
    b = te.compute((4,), lambda i: te.sum(a[i, k], axis=k, init=u[i]), name="B")
    return a, u, b, te.create_schedule(b.op)


def test_initial_values_follow_the_axes_of_a_factored_reduction():
    a, u, b, s = from_a_tensor()
    s.rfactor(b, s[b].split(b.op.reduce_axis[0], factor=4)[1])
    assert findings(s, [a, u, b]) == []


def test_initial_values_of_tiles_beside_the_tensor_are_not_read():
    a, u, b, s = from_a_tensor()
    s[b].split(b.op.axis[0], factor=3)
    s.cache_write(b, "local")
    assert findings(s, [a, u, b]) == []


def test_initial_values_are_there_before_the_reduction():
    a, u, b, s = from_a_tensor()
    c = s.cache_read(u, "local", [b])
    s[c].compute_at(s[b], s[b].op.axis[0])
    assert findings(s, [a, u, b]) == []
    s[c].compute_at(s[b], s[b].op.reduce_axis[0])
    with pytest.raises(ValueError, match="stage U.local is computed inside the reduction loop k of stage B.*initial value"):
        findings(s, [a, u, b])


def test_initial_values_have_the_type_of_the_values():
    a, k = te.placeholder((4, 6), "float32", name="A"), te.reduce_axis((0, 6), name="k")
    b = te.compute((4,), lambda i: te.sum(a[i, k], axis=k, init=2), name="B")
    assert findings(te.create_schedule(b.op), [a, b]) == []
    u = te.placeholder((4,), "int32", name="U")
    with pytest.raises(TypeError, match=r"initial value U\[0\] of a reduction has type int32, its values have type float32"):
        te.sum(a[0, k], axis=k, init=u[0])


def test_reductions_that_keep_a_part_of_their_results():
    a, k = te.placeholder((4, 9), "int32", name="A"), te.reduce_axis((0, 9), name="k")
    reducer = argmax()
    b = te.compute((4,), lambda i: reducer((k, a[i, k]), axis=k)[0], name="B")
    s = te.create_schedule(b.op)
    with pytest.raises(ValueError, match="stage B: a reduction must store each of its"):
        findings(s, [a, b])
    with pytest.raises(ValueError, match="rfactor: stage .* keeps 1 of 2 results"):
        s.rfactor(b, k)
