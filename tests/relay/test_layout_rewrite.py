"""Tuned CPU programs of a network read their constant weights in the order of their loops: the weights are re-laid
out once, at build time. Outputs must equal those of the plain build bit by bit (all values are small integers)."""

import json

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import IRModule, _core, auto_scheduler, relay, te, topi, transform
from nestsmith.auto_scheduler.compute_dag import ComputeDAG, LayoutRewriteOption
from nestsmith.contrib import graph_executor
from nestsmith.relay.packing import relayout

LLVM = ns.target.Target("llvm")
CPU = ns.cpu(0)


def ints(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def module(body):
    return IRModule.from_expr(relay.Function(relay.expr.free_vars(body), body))


def weight(seed, *shape):
    return relay.const(ints(seed, *shape))


def dense():
    x = relay.var("x", shape=(6, 48))
    return relay.nn.relu(relay.nn.dense(x, weight(1, 40, 48)))


def batch_matmul():
    x = relay.var("x", shape=(3, 10, 24))
    return relay.nn.batch_matmul(x, weight(2, 3, 16, 24))


def broadcast_weight():
    x = relay.var("x", shape=(3, 10, 24))
    return relay.nn.batch_matmul(x, weight(2, 1, 16, 24))


def conv(x, w, **more):
    return relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", **more)


def block():
    """A residual block: 3x3 and 1x1 convolutions, one of them with stride 2."""
    x = relay.var("x", shape=(1, 12, 12, 8))
    y = relay.nn.relu(relay.add(conv(x, weight(3, 3, 3, 8, 16), strides=2, padding=1), weight(4, 16)))
    y = conv(y, weight(5, 1, 1, 16, 16))
    return relay.add(y, conv(x, weight(6, 1, 1, 8, 16), strides=2))


NETWORKS = {f.__name__: f for f in (dense, batch_matmul, broadcast_weight, block)}


def tasks_of(mod):
    return auto_scheduler.extract_tasks(mod, None, LLVM, include_simple_tasks=False)[0]


def sampled(mod, seed):
    """A history with one sampled state per task."""
    history = auto_scheduler.ApplyHistoryBest(None)
    for t in tasks_of(mod):
        policy = auto_scheduler.SketchPolicy(t, auto_scheduler.RandomModel(), seed=seed, verbose=0)
        states = policy.sample_initial_population()
        history.update(LLVM, t.workload_key, states[seed % len(states)])
    return history


def build(mod, history=None, **context):
    with transform.PassContext(opt_level=3, **context):
        if history is None:
            return relay.build(mod, target=LLVM)
        with history:
            return relay.build(mod, target=LLVM)


def run(lib, **inputs):
    m = graph_executor.GraphModule(lib["default"](CPU))
    m.run(**inputs)
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


def inputs_of(mod):
    return {
        p.name_hint: ints(9, *p.checked_type.concrete_shape) for p in relay.transform.InferType()(mod)["main"].params
    }


def changes(lib):
    """Function -> inputs that are read in another layout."""
    out = {}
    for name, k in lib.kernels.items():
        found = [a for a in json.loads(k.manifest)["args"] if "axis" in a]
        if found:
            out[name] = found
    return out


def shapes(lib):
    return sorted(tuple(v.shape) for v in lib.get_params().values())


@pytest.mark.some(4)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_sampled_states(name, seed):
    mod = module(NETWORKS[name]())
    tuned, plain = build(mod, sampled(mod, seed)), build(mod)
    x = inputs_of(mod)
    assert np.array_equal(run(tuned, **x)[0], run(plain, **x)[0])
    made = changes(tuned)
    assert len(made) == len(tasks_of(mod)) and not changes(plain)
    assert {tuple(a["shape"]) for list_ in made.values() for a in list_} <= set(shapes(tuned))
    assert len(tuned.get_params()) == len(plain.get_params())  # the plain weights are not kept


def steps(dag, apply):
    s = _core.State(dag)
    apply(s)
    return s.steps()


def stage_of(dag, name):
    return next(i for i, op in enumerate(dag.ops) if op.name.startswith(name))


def dense_by_hand(columns):
    """The columns split by `columns`, the block of columns outermost, the summation between the two."""

    def apply_to(dag):
        i = stage_of(dag, "T_matmul")

        def apply(s):
            n = s.stages()[i][3]
            s.apply("SP", i, 1, n[1][4], [columns], 1)  # i, j.0, j.1, k
            s.apply("RE", i, [1, 0, 3, 2])

        return steps(dag, apply)

    return apply_to


@pytest.mark.parametrize(("columns", "want"), [(8, (5, 48, 8)), (7, (6, 48, 7))])
def test_dense_by_hand(columns, want):
    """40 columns in blocks of 8, and in blocks of 7, where the last block is filled up with zeros."""
    mod = module(dense())
    (task,) = tasks_of(mod)
    history = auto_scheduler.ApplyHistoryBest(None)
    history.update(LLVM, task.workload_key, dense_by_hand(columns)(task.compute_dag))
    lib = build(mod, history)
    x = inputs_of(mod)
    assert shapes(lib) == [want]
    assert np.array_equal(run(lib, **x)[0], np.maximum(x["x"] @ ints(1, 40, 48).T, 0))
    (stored,) = lib.get_params().values()
    assert np.array_equal(np.asarray(stored), relayout(ints(1, 40, 48), (40, 48), want, [0, 1, 0]))


@pytest.mark.parametrize(("columns", "want"), [(8, (5, 48, 8)), (7, (40, 48))])
def test_columns_computed_where_they_are_read(columns, want):
    """The product of some columns at a time, inside the loops of what reads it: such parts of the weight lie one behind the other, if
    they are whole."""
    mod = module(dense())
    (task,) = tasks_of(mod)
    dag = task.compute_dag
    i, out = stage_of(dag, "T_matmul"), len(dag.ops) - 1

    def apply(s):
        s.apply("SP", out, 1, 40, [columns], 1)  # i0, i1.0, i1.1
        s.apply("RE", out, [1, 0, 2])
        s.apply("RE", i, [0, 2, 1])  # i, k, j
        s.apply("CA", i, out, 0)

    history = auto_scheduler.ApplyHistoryBest(None)
    history.update(LLVM, task.workload_key, steps(dag, apply))
    lib = build(mod, history)
    x = inputs_of(mod)
    assert shapes(lib) == [want]
    assert np.array_equal(run(lib, **x)[0], np.maximum(x["x"] @ ints(1, 40, 48).T, 0))


def test_convolution_by_hand():
    x = relay.var("x", shape=(1, 6, 6, 8))
    mod = module(conv(x, weight(3, 3, 3, 8, 16), padding=1))
    (task,) = tasks_of(mod)
    i = stage_of(task.compute_dag, "conv2d_nhwc")

    def apply(s):  # nn yy xx ff rc ry rx (or another order of the reduction): split ff by 4, that part innermost
        axes = [a[0] for a in s.stages()[i][3]]
        s.apply("SP", i, axes.index("ff"), 16, [4], 1)
        now = [a[0] for a in s.stages()[i][3]]
        order = [now.index(n) for n in ("nn", "ff.0", "yy", "xx", "ry", "rx", "rc", "ff.1")]
        s.apply("RE", i, order)

    history = auto_scheduler.ApplyHistoryBest(None)
    history.update(LLVM, task.workload_key, steps(task.compute_dag, apply))
    lib = build(mod, history)
    assert shapes(lib) == [(4, 3, 3, 8, 4)]
    given = inputs_of(mod)
    assert np.array_equal(run(lib, **given)[0], run(build(mod), **given)[0])


def test_a_weight_shared_by_two_functions():
    """Two functions with different schedules read one weight: each gets it in its own layout."""
    w = weight(1, 40, 48)
    x, y = relay.var("x", shape=(6, 48)), relay.var("y", shape=(9, 48))
    mod = module(relay.expr.Tuple([relay.nn.dense(x, w), relay.nn.dense(y, w)]))
    two = tasks_of(mod)
    assert len(two) == 2
    history = auto_scheduler.ApplyHistoryBest(None)
    for t, columns in zip(two, (8, 10)):
        history.update(LLVM, t.workload_key, dense_by_hand(columns)(t.compute_dag))
    lib, given = build(mod, history), inputs_of(mod)
    assert shapes(lib) == [(4, 48, 10), (5, 48, 8)]
    for got, want in zip(run(lib, **given), run(build(mod), **given)):
        assert np.array_equal(got, want)
    history = auto_scheduler.ApplyHistoryBest(
        None
    )  # the same layout twice: one copy; one function untuned: the plain one
    history.update(LLVM, two[0].workload_key, dense_by_hand(8)(two[0].compute_dag))
    assert shapes(build(mod, history)) == [(5, 48, 8), (40, 48)]
    history.update(LLVM, two[1].workload_key, dense_by_hand(8)(two[1].compute_dag))
    lib = build(mod, history)
    assert shapes(lib) == [(5, 48, 8)]
    for got, want in zip(run(lib, **given), run(build(mod), **given)):
        assert np.array_equal(got, want)


def test_one_function_called_with_two_weights():
    x = relay.var("x", shape=(6, 48))
    mod = module(relay.nn.dense(relay.nn.dense(x, weight(1, 48, 48)), weight(2, 48, 48)))
    (task,) = tasks_of(mod)
    history = auto_scheduler.ApplyHistoryBest(None)
    history.update(LLVM, task.workload_key, dense_by_hand(8)(task.compute_dag))
    lib, given = build(mod, history), inputs_of(mod)
    assert shapes(lib) == [(6, 48, 8)] * 2
    assert np.array_equal(run(lib, **given)[0], run(build(mod), **given)[0])


@pytest.mark.parametrize("how", ["an input", "computed", "an input in one of two calls"])
def test_a_weight_that_is_not_constant_stays_plain(how):
    x, w = relay.var("x", shape=(6, 48)), relay.var("w", shape=(48, 48))
    if how == "an input":
        body = relay.nn.dense(x, w)
    elif how == "computed":
        body = relay.nn.dense(x, relay.nn.softmax(w))
    else:
        body = relay.nn.dense(relay.nn.dense(x, w), weight(2, 48, 48))
    mod = module(body)
    history = sampled(mod, 1)
    lib, given = build(mod, history), inputs_of(mod)
    assert not changes(lib)
    got, want = run(lib, **given)[0], run(build(mod), **given)[0]
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5) if how == "computed" else np.array_equal(got, want)


def test_constants_beside_tuples():
    """Parameters are counted with tuples taken apart."""
    x = relay.var("x", shape=(6, 24))
    both = relay.concatenate([x, relay.nn.relu(x)], 1)
    mod = module(relay.nn.dense(both, weight(1, 40, 48)))
    lib, given = build(mod, sampled(mod, 2)), inputs_of(mod)
    assert len(changes(lib)) == 1
    assert np.array_equal(run(lib, **given)[0], run(build(mod), **given)[0])


def attention(rows):
    """A product with a constant, whose rows meet a matrix that the network computes."""
    x, y = relay.var("x", shape=(1, rows, 24)), relay.var("y", shape=(1, 40, 24))
    return relay.nn.batch_matmul(relay.nn.batch_matmul(x, weight(1, 1, 24, 24)), relay.nn.relu(y))


@pytest.mark.parametrize("rows,option", [(32, LayoutRewriteOption.INSERT_TRANSFORM_STAGE), (2, LayoutRewriteOption.NO_REWRITE)])
def test_computed_matrices_are_packed_by_their_reader(rows, option):
    """... if it reads their elements often; tuning measures the same program. Constants are packed ahead of time beside it."""
    mod = module(attention(rows))
    options = [t.layout_rewrite_option for t in tasks_of(mod)]
    assert options == [LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED, option]
    lib, given = build(mod, sampled(mod, 1)), inputs_of(mod)
    want = run(build(mod), **given)[0]
    assert len(changes(lib)) == 1 and np.array_equal(run(lib, **given)[0], want)
    last = list(lib.kernels.values())[-1]
    plain = build(mod, sampled(mod, 1), disabled_pass=["AutoSchedulerLayoutRewrite"])
    assert (last.source == list(plain.kernels.values())[-1].source) == (option == LayoutRewriteOption.NO_REWRITE)


def test_computed_matrices_are_read_as_they_lie_on_a_gpu():
    """A kernel that packs is no kernel there: what was tuned was not built."""
    mod, mali = module(attention(32)), ns.target.Target("opencl -device=mali")
    task = auto_scheduler.extract_tasks(mod, None, mali, include_simple_tasks=False)[0][1]
    assert task.layout_rewrite_option == LayoutRewriteOption.NO_REWRITE
    history = auto_scheduler.ApplyHistoryBest(None)
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), seed=1, verbose=0)
    history.update(mali, task.workload_key, policy.sample_initial_population()[0])
    with history, transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=mali)
    assert list(lib.kernels.values())[-1].origin == "tuned"
    dag = ComputeDAG(te_conv())
    task = auto_scheduler.SearchTask(compute_dag=dag, workload_key=dag.workload_key(), target=mali)
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), seed=1, verbose=0)
    ns.build(*dag.apply_steps_from_state(policy.sample_initial_population()[0], task.layout_rewrite_option), mali)


def test_the_pass_can_be_disabled():
    mod = module(dense())
    history = sampled(mod, 0)
    lib = build(mod, history, disabled_pass=["AutoSchedulerLayoutRewrite"])
    assert not changes(lib) and shapes(lib) == [(40, 48)]
    given = inputs_of(mod)
    assert np.array_equal(run(lib, **given)[0], run(build(mod), **given)[0])


def test_files_hold_the_weights_in_the_new_layout(tmp_path):
    mod = module(block())
    lib, given = build(mod, sampled(mod, 0)), inputs_of(mod)
    want = run(lib, **given)[0]
    lib.export_library(str(tmp_path / "net.so"))
    again = ns.runtime.load_module(str(tmp_path / "net.so"))
    assert np.array_equal(run(again, **given)[0], want) and shapes(again) == shapes(lib)
    graph, code, params = lib.get_graph_json(), lib.get_lib(), relay.save_param_dict(lib.get_params())
    m = graph_executor.create(graph, code, CPU)
    m.load_params(params)
    m.run(**given)
    assert np.array_equal(m.get_output(0).numpy(), want)


def test_records_of_tuning_are_used(tmp_path):
    """From a measured log to the network: the tuner measures what the network runs, in the same layout."""
    mod = module(block())
    log = str(tmp_path / "log.json")
    tasks = tasks_of(mod)
    assert {t.layout_rewrite_option for t in tasks} == {LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED}
    for t in tasks[:2]:
        policy = auto_scheduler.SketchPolicy(t, auto_scheduler.RandomModel(), seed=1, verbose=0)
        options = auto_scheduler.TuningOptions(
            2,
            runner=auto_scheduler.LocalRunner(min_repeat_ms=1),
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
            verbose=0,
        )
        t.tune(options, search_policy=policy)
    for inp, res in auto_scheduler.RecordReader(log):
        assert res.error_no == 0 and inp.task.layout_rewrite_option == 2
    lib, given = build(mod, auto_scheduler.ApplyHistoryBest(log)), inputs_of(mod)
    assert len(changes(lib)) == 2
    assert np.array_equal(run(lib, **given)[0], run(build(mod), **given)[0])


# ---- stand-alone tasks: the transform is a stage of the program -------------------------------------------------------


def te_dense():
    x, w = te.placeholder((6, 48), name="X"), te.placeholder((40, 48), name="W")
    return [x, w, topi.nn.relu(topi.nn.dense(x, w))]


def te_conv():
    x, w = te.placeholder((1, 6, 6, 8), name="X"), te.placeholder((3, 3, 8, 16), name="W")
    return [x, w, topi.nn.conv2d_nhwc(x, w, 1, 1, 1)]


def te_batch_matmul():
    x, w = te.placeholder((3, 10, 24), name="X"), te.placeholder((3, 16, 24), name="W")
    return [x, w, topi.nn.batch_matmul(x, w)]


@pytest.mark.some(3)
@pytest.mark.parametrize("make", [te_dense, te_conv, te_batch_matmul])
@pytest.mark.parametrize("seed", [0, 1])
def test_transform_stage_of_a_stand_alone_task(make, seed):
    dag = ComputeDAG(make())
    task = auto_scheduler.SearchTask(compute_dag=dag, workload_key=dag.workload_key(), target=LLVM)
    assert task.layout_rewrite_option == LayoutRewriteOption.INSERT_TRANSFORM_STAGE
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), seed=seed, verbose=0)
    state = policy.sample_initial_population()[seed]
    shape = [tuple(int(d) for d in t.shape) for t in dag.tensors]
    args = [ints(7, *shape[0]), ints(8, *shape[1])]
    got = {}
    for option in (0, 1, 2):
        s, tensors = dag.apply_steps_from_state(state, option)
        f = ns.build(s, tensors, LLVM)
        given = list(args)
        if option == 2:
            a = json.loads(_core.candidate_source(state.state_object, task.engine_target(), 2)[1])["args"][1]
            given[1] = relayout(args[1], a["from_shape"], a["shape"], a["axis"])
        out = ns.nd.array(np.zeros(shape[-1], "float32"))
        f(*[ns.nd.array(v) for v in given], out)
        got[option] = out.numpy()
        if option == 1:
            assert "auto_scheduler_layout_transform" in f.get_source() or len(s.stages) > len(dag.ops)
    assert np.array_equal(got[0], got[1]) and np.array_equal(got[0], got[2])


# ---- measuring as in the network ----------------------------------------------------------------------------------------


def test_weights_of_a_network_are_measured_cold():
    """Tasks know which inputs are weights and how much memory all weights of the network take."""
    mod = module(block())
    tasks = tasks_of(mod)
    nbytes = 4 * (3 * 3 * 8 * 16 + 16 + 16 * 16 + 8 * 16)
    assert all(t.constant_bytes == nbytes and 1 in t.constant_inputs for t in tasks)
    x, w = relay.var("x", shape=(6, 48)), relay.var("w", shape=(40, 48))
    assert tasks_of(module(relay.nn.dense(x, w)))[0].constant_inputs == ()


def test_cold_arguments_of_a_session(closing):
    from helpers import policy, wait_until

    dag = ComputeDAG(te_dense())
    task = auto_scheduler.SearchTask(compute_dag=dag, workload_key=dag.workload_key(), target=LLVM)
    session = closing(_core.Session(task.engine_target(), 1, 0, 1, 1, 60.0))
    number = session.task(dag, task.engine_target(), 2, True, None)
    for tag, (mask, nbytes) in enumerate([(0, 0), (2, 1 << 20), (2, 1), (6, 1 << 18), (1 << 63, 1 << 20)]):
        session.cold(number, mask, nbytes)
        session.submit(number, [_core.State(dag)], tag, policy(number=3, timeout=60.0, race=True))
        results = []
        assert wait_until(lambda: results.extend(session.poll(1.0)) or results)
        (r,) = results
        assert (r["tag"], r["error"], r["msg"]) == (tag, 0, "") and 0 < r["costs"][0] < 1
    with pytest.raises((ValueError, RuntimeError), match="task 7"):
        session.cold(7, 1, 1)
