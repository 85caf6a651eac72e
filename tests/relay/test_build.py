"""Networks compiled for the CPU with default schedules: output against PyTorch and NumPy, and the executor's
interface."""

import warnings

import numpy as np
import pytest
from networks import SMALL, logits, numpy_params
from relay_reference import evaluate, relative_error

import nestsmith as ns
from nestsmith import IRModule, nd, relay, runtime, transform
from nestsmith.contrib import graph_executor, graph_runtime

CPU = ns.cpu(0)


def build(mod, params=None, target="llvm", level=3):
    with transform.PassContext(opt_level=level):
        return relay.build(mod, target=target, params=params)


def run(lib, **inputs):
    m = graph_executor.GraphModule(lib["default"](CPU))
    m.run(**inputs)
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


@pytest.fixture(scope="module")
def mlp():
    mod, params = SMALL["mlp"]()
    return mod, params, build(mod, params)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in ("resnet18-NHWC", "mobilenet-NHWC", "dcgan") else pytest.mark.full)
        for n in SMALL
    ],
)
def test_networks(name):
    mod, params = SMALL[name]()
    mod = logits(mod)
    f = mod["main"]
    x = np.random.default_rng(0).uniform(-1, 1, f.params[0].checked_type.shape).astype("float32")
    want = evaluate(f, {"data": x, **numpy_params(params)})
    assert relative_error(run(build(mod, params), data=x)[0], want) < 1e-4


def test_lstm():
    mod, params = relay.testing.lstm.get_workload(2, 8)
    lib = build(mod, params)
    m = graph_executor.GraphModule(lib["default"](CPU))
    x = np.random.default_rng(0).uniform(-1, 1, (2, 1, 8)).astype("float32")
    for i in range(2):
        m.set_input(i, x[i])
    m.run()
    h = c = np.zeros((1, 8))
    for i in range(2):
        p = {k: v.numpy() for k, v in params.items()}
        g = x[i] @ p[f"i2h_{i}_weight"].T + p[f"i2h_{i}_bias"] + h @ p[f"h2h_{i}_weight"].T + p[f"h2h_{i}_bias"]
        i_, f_, t_, o_ = np.split(g, 4, 1)
        sig = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
        c = sig(f_) * c + sig(i_) * np.tanh(t_)
        h = sig(o_) * np.tanh(c)
    assert relative_error(m.get_output(0).numpy(), h) < 1e-5


def X(*shape, dtype="float32"):
    return relay.var("x", shape=shape, dtype=dtype)


def small(rng, shape):
    return rng.integers(-4, 5, shape)


nn = relay.nn
OPERATORS = {
    "transpose + reshape": lambda: relay.reshape(relay.transpose(X(2, 3, 4), (2, 0, 1)), (6, 4)),
    "split + concatenate": lambda: relay.concatenate([(s := relay.split(X(4, 6), 3, axis=1))[2], s[0], s[1]], 1),
    "strided slices": lambda: relay.strided_slice(X(7, 5), (5, 4), (-8, -6), (-2, -1)),
    "take": lambda: relay.take(X(5, 4), relay.const([[0, 9], [-3, 2]]), axis=0),
    "pad": lambda: nn.pad(X(2, 3), ((1, 0), (0, 2)), 3.0),
    "layout": lambda: relay.layout_transform(X(1, 8, 3, 3), "NCHW", "NHWC"),
    "blocked layout": lambda: relay.layout_transform(
        relay.layout_transform(X(1, 8, 3, 3), "NCHW", "NCHW4c"), "NCHW4c", "NHWC"
    ),
    "reductions": lambda: relay.expr.Tuple(
        [relay.sum(X(3, 4, 5), (0, 2)), relay.max(X(3, 4, 5), 1, True), relay.prod(X(3, 4, 5), -1)]
    ),
    "argmax": lambda: relay.argmax(X(6, 9), 1),
    "mean and variance": lambda: relay.variance(X(4, 8), -1, True),
    "stack, repeat, tile": lambda: relay.tile(relay.repeat(relay.stack([X(2, 3), X(2, 3)], 1), 2, 0), (1, 2)),
    "where and compare": lambda: relay.where(
        relay.greater(X(5, 5), relay.const(0.0)), X(5, 5), relay.negative(X(5, 5))
    ),
    "batch_matmul": lambda: nn.batch_matmul(X(2, 3, 4), relay.reshape(X(2, 3, 4), (2, 3, 4))),
    "matmul": lambda: nn.matmul(X(3, 4), X(3, 4), transpose_b=True),
    "dense of rank 3": lambda: nn.dense(X(2, 3, 4), relay.const(np.arange(20, dtype="float32").reshape(5, 4))),
    "one output is an input": lambda: relay.expr.Tuple([X(3, 3), relay.exp(X(3, 3))]),
    "squeeze of a slice": lambda: relay.squeeze(relay.strided_slice(X(3, 4), (1, 0), (2, 4)), 0),
    "pools": lambda: relay.expr.Tuple(
        [
            nn.avg_pool2d(X(1, 2, 7, 7), 3, 2, padding=1),
            nn.avg_pool2d(X(1, 2, 7, 7), 3, 2, padding=1, count_include_pad=True),
            nn.adaptive_avg_pool2d(X(1, 2, 7, 7), (3, 2)),
            nn.max_pool2d(X(1, 2, 7, 7), 2, 2, ceil_mode=True),
        ]
    ),
    "grouped convolution": lambda: nn.conv2d(
        X(1, 8, 6, 6), relay.const(np.ones((4, 4, 3, 3), "float32")), groups=2, padding=1
    ),
    "dilated convolution": lambda: nn.conv2d(
        X(1, 4, 9, 8), relay.const(np.ones((2, 4, 3, 3), "float32")), dilation=2, padding=(1, 2, 0, 3)
    ),
    "transposed convolution": lambda: nn.conv2d_transpose(
        X(1, 3, 4, 5), relay.const(np.ones((3, 2, 3, 3), "float32")), strides=2, padding=1, output_padding=1
    ),
    "rank 0": lambda: relay.add(relay.sum(X(3, 4)), relay.const(1.0)),
}


def one_variable(body):
    """All variables called x become one parameter."""
    x = None
    table = {}
    for v in relay.expr.free_vars(body):
        x = x or v
        table[v] = x
    return relay.Function([x], relay.expr.bind(body, table))


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    f = one_variable(OPERATORS[name]())
    x = small(np.random.default_rng(1), f.params[0].checked_type.shape).astype("float32")
    want = evaluate(f, {"x": x})
    want = want if isinstance(want, list) else [want]
    got = run(build(IRModule.from_expr(f)), x=x)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.dtype == np.asarray(w).dtype and relative_error(g, w) < 1e-6


@pytest.mark.parametrize("level", [0, 1, 2])
def test_levels(level):
    mod, params = SMALL["dqn"]()
    x = np.random.default_rng(0).uniform(size=(1, 4, 84, 84)).astype("float32")
    want = evaluate(mod["main"], {"data": x, **numpy_params(params)})
    assert relative_error(run(build(mod, params, level=level), data=x)[0], want) < 1e-4


def test_variables_stay_inputs():
    mod, params = SMALL["mlp"]()
    x = np.ones((1, 1, 28, 28), "float32")
    a = run(build(mod, params), data=x)[0]
    assert relative_error(run(build(mod), data=x, **params)[0], a) < 1e-5


def test_inputs_and_outputs(mlp):
    m = graph_runtime.GraphModule(mlp[2]["default"](CPU))
    assert m.get_input_info() == ({"data": (1, 1, 28, 28)}, {"data": "float32"})
    assert m.get_num_outputs() == 1 and m.get_input_index("data") == 0 and m.get_input_index("nothing") == -1
    x = np.random.default_rng(0).normal(size=(1, 1, 28, 28))
    m.set_input("data", x)  # another dtype is converted
    assert np.array_equal(m.get_input("data").numpy(), x.astype("float32"))
    m.run()
    first = m.get_output(0).numpy()
    out = nd.empty((1, 10), "float32")
    assert m.get_output(0, out) is out and np.array_equal(out.numpy(), first)
    m.set_input(**mlp[1])  # weights that became constants are skipped
    with pytest.raises(RuntimeError, match="data"):
        m.set_input("dat", x)
    with pytest.raises(RuntimeError, match="constants"):
        m.set_input("fc1_weight", x)
    with pytest.raises(RuntimeError, match="dta"):
        m.run(dta=x)
    with pytest.raises(ValueError, match=r"\(1, 1, 28, 28\)"):
        m.set_input("data", x[0])
    with pytest.raises(IndexError):
        m.get_output(1)
    with pytest.raises(ValueError):
        m.get_output(0, nd.empty((10,), "float32"))
    with pytest.raises(AttributeError, match="run"):
        m["walk"]


def test_zero_copy(mlp):
    m = graph_executor.GraphModule(mlp[2]["default"](CPU))
    x, y = (
        nd.array(np.random.default_rng(0).normal(size=(1, 1, 28, 28)).astype("float32")),
        nd.empty((1, 10), "float32"),
    )
    m.set_input_zero_copy("data", x)
    m.set_output_zero_copy(0, y)
    m.run()
    assert relative_error(y.numpy(), run(mlp[2], data=x)[0]) < 1e-6
    x[:] = np.zeros(x.shape, "float32")
    m.run()
    assert relative_error(y.numpy(), run(mlp[2], data=np.zeros(x.shape))[0]) < 1e-6
    with pytest.raises(ValueError):
        m.set_input_zero_copy("data", nd.empty((1, 28, 28), "float32"))


def test_values_between_kernels_may_have_no_elements():
    x, w = relay.var("x", shape=(0, 8)), relay.const(np.ones((4, 8), "float32"))
    rows = relay.nn.relu(relay.nn.dense(relay.nn.relu(relay.nn.dense(x, w)), relay.const(np.ones((5, 4), "float32"))))
    lib = relay.build(relay.module.IRModule.from_expr(relay.Function([x], relay.sum(rows, axis=0))), target="llvm")
    assert len(lib.kernels) > 1
    assert np.array_equal(run(lib, x=np.zeros((0, 8), "float32"))[0], np.zeros(5))


def test_timing(mlp):
    m = graph_executor.GraphModule(mlp[2]["default"](CPU))
    r = m.benchmark(CPU, repeat=3, number=2)
    assert len(r.results) == 3 and 0 < r.min <= r.median <= r.max < 1 and "Execution time summary" in str(r)
    r = m.benchmark(CPU, repeat=2, min_repeat_ms=5, end_to_end=True, data=np.zeros((1, 1, 28, 28), "float32"))
    assert r.mean > 0
    evaluator = m.module.time_evaluator("run", CPU, number=1, repeat=2)
    assert len(evaluator().results) == 2


def test_factory(mlp):
    lib = mlp[2]
    with pytest.warns(DeprecationWarning):
        graph, module, params = lib
    assert graph == lib.get_graph_json() == lib.graph_json and params is lib.get_params()
    m = graph_executor.create(graph, module, CPU)
    m.load_params(relay.save_param_dict(params))
    x = np.ones((1, 1, 28, 28), "float32")
    m.run(data=x)
    assert np.array_equal(m.get_output(0).numpy(), run(lib, data=x)[0])
    assert "fused_nn_dense_add" in lib.get_lib().imported_modules[0].get_source()
    with pytest.raises(AttributeError, match="default"):
        lib["other"]
    with pytest.raises(ValueError, match="compiled for llvm"):
        lib["default"](ns.cuda(0))


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_export(mlp, tmp_path, suffix):
    path = tmp_path / ("net" + suffix)
    mlp[2].export_library(str(path))
    lib = runtime.load_module(str(path))
    x = np.random.default_rng(0).normal(size=(1, 1, 28, 28)).astype("float32")
    assert np.array_equal(run(lib, data=x)[0], run(mlp[2], data=x)[0])


def test_damaged_files(mlp, tmp_path):
    from nestsmith.runtime.graph import from_bytes

    data = bytearray(mlp[2].to_bytes())
    data[-5] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        from_bytes(bytes(data))
    with pytest.raises(ValueError):
        from_bytes(b"something else")
    with pytest.raises(ValueError, match="no such file"):
        runtime.load_module(str(tmp_path / "missing.so"))


def test_argument_orders():
    mod, params = SMALL["mlp"]()
    x = np.ones((1, 1, 28, 28), "float32")
    want = run(build(mod, params), data=x)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        libs = [
            relay.build(mod, "llvm", None, params),
            relay.build(mod["main"], "llvm", params),
            relay.build_module.build(mod, target="llvm", target_host="llvm", params=params),
        ]
        with ns.target.Target("llvm"):
            libs.append(relay.build(mod, params=params))
    for lib in libs:
        assert relative_error(run(lib, data=x)[0], want) < 1e-5
    with pytest.raises(TypeError, match="parms"):
        relay.build(mod, "llvm", parms=params)
    with pytest.raises(TypeError, match="IRModule"):
        relay.build("resnet", "llvm")
    with pytest.raises(ValueError, match="target"):
        relay.build(mod, params=params)


def test_what_cannot_be_compiled(monkeypatch):
    from nestsmith.relay.op import registry

    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    registry.register("test.sort", registry.OPAQUE, lambda attrs, types: types[0])
    c, x = relay.var("c", shape=(), dtype="bool"), X(2)
    with pytest.raises(ValueError, match="branch"):
        build(IRModule.from_expr(relay.Function([c, x], relay.If(c, relay.exp(x), x))))
    with pytest.raises(ValueError, match="test.sort, 1 call: operator test.sort has no definition as loops"):
        build(IRModule.from_expr(relay.Function([x], registry.call("test.sort", [x]))))
    y = relay.var("x", relay.TensorType((relay.Any(),)))
    with pytest.raises(ValueError, match="run time"):
        build(IRModule.from_expr(relay.Function([y], relay.exp(y))))


def test_memory_is_shared(mlp):
    import json

    graph = json.loads(mlp[2].graph_json)
    ids = graph["attrs"]["storage_id"][1]
    assert len(set(ids)) < len(ids)
    assert any(n["attrs"]["func_name"] == "__nop" for n in graph["nodes"] if n["op"] == "tvm_op")


@pytest.mark.gpu
@pytest.mark.parametrize("name", SMALL)
def test_networks_on_a_gpu(name):
    dev = ns.cuda(0)
    if not dev.exist:
        pytest.skip(dev.why_not)
    mod, params = SMALL[name]()
    mod = logits(mod)
    f = mod["main"]
    x = np.random.default_rng(0).uniform(-1, 1, f.params[0].checked_type.shape).astype("float32")
    want = evaluate(f, {"data": x, **numpy_params(params)})
    m = graph_executor.GraphModule(build(mod, params, "cuda")["default"](dev))
    m.set_input("data", x)
    for _ in range(4):  # plain, captured, replayed
        m.run()
        assert relative_error(m.get_output(0).numpy(), want) < 1e-4
    assert m.module.mode == "cuda graph"


# ---- schedules from records ----------------------------------------------------------------------------------------


def programs(mod, params, context, target="llvm"):
    from nestsmith.relay import build_module
    from nestsmith.relay.pipeline import optimize

    target = ns.target.Target(target)
    with transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}), context:
        return build_module.compile_module(optimize(mod, target, params), target)[2]


@pytest.mark.parametrize("newer_names", [False, True])
def test_records_are_used_under_either_naming(newer_names, tmp_path):
    from nestsmith import auto_scheduler
    from nestsmith.topi.default_schedule import default_state

    mod, params = SMALL["mlp"]()
    target = ns.target.Target("llvm")
    tasks, _ = auto_scheduler.extract_tasks(mod, params, target)
    history = auto_scheduler.ApplyHistoryBest(None)
    for t in tasks:
        history.update(
            target, t.alt_keys[0] if newer_names else t.workload_key, default_state(t.compute_dag, target).steps()
        )
    made = programs(mod, params, history)
    assert {p.origin for p in made if not p.reshape} == {"tuned"}
    with transform.PassContext(opt_level=3), history:
        lib = relay.build(mod, target=target, params=params)
    x = np.ones((1, 1, 28, 28), "float32")
    assert relative_error(run(lib, data=x)[0], run(build(mod, params), data=x)[0]) < 1e-6


@pytest.mark.parametrize(
    ("new", "axes"), [([2, 6, 3, 2], [1, 0, 1, 0]), ([4, 2, 3, 3], [0, 1, 0, 1]), ([6, 12], [1, 0])]
)
def test_constants_in_another_layout(new, axes):
    from nestsmith.relay.packing import relayout

    old = np.arange(12 * 6, dtype="float32").reshape(12, 6)
    got = relayout(old, (12, 6), new, axes)
    assert got.shape == tuple(new)
    for at in np.ndindex(*new):
        where = [0, 0]
        for k, a in enumerate(axes):
            where[a] = where[a] * new[k] + at[k]
        assert got[at] == old[tuple(where)]
    assert relayout(old[:11], (11, 6), [6, 12], [1, 0])[2, 11] == 0  # rounded up with zeros


def test_tuned_kernels_read_their_weights_in_the_measured_layout():
    from nestsmith import auto_scheduler

    mod, params = SMALL["mlp"]()
    target = ns.target.Target("llvm")
    tasks, _ = auto_scheduler.extract_tasks(mod, params, target)
    history = auto_scheduler.ApplyHistoryBest(None)
    for t in tasks:
        policy = auto_scheduler.SketchPolicy(t, auto_scheduler.RandomModel(), seed=1, verbose=0)
        history.update(target, t.workload_key, policy.sample_initial_population()[0])
    with transform.PassContext(opt_level=3), history:
        lib, plain = relay.build(mod, target=target, params=params), relay.build(mod, target=target)
    assert sum('"from_shape"' in p.manifest for p in lib.kernels.values()) == 3
    assert not any('"from_shape"' in p.manifest for p in plain.kernels.values())  # weights stay inputs
    x = np.random.default_rng(0).normal(size=(1, 1, 28, 28)).astype("float32")
    want = run(build(mod, params), data=x)[0]
    assert relative_error(run(lib, data=x)[0], want) < 1e-5
    assert relative_error(run(plain, data=x, **params)[0], want) < 1e-5


def test_steps_that_do_not_replay_fall_back(caplog):
    from nestsmith import auto_scheduler

    mod, params = SMALL["mlp"]()
    target = ns.target.Target("llvm")
    tasks, _ = auto_scheduler.extract_tasks(mod, params, target)
    history = auto_scheduler.ApplyHistoryBest(None)
    history.update(target, tasks[0].workload_key, '[["CI", 99]]')
    made = programs(mod, params, history)
    bad = [p for p in made if p.why]
    assert len(bad) == 1 and bad[0].origin == "default" and "did not replay" in bad[0].why


def test_a_reshape_may_read_a_field_of_a_tuple():
    """Both fields are reshaped only, and nothing else joins their functions: they are views of what the split made."""
    x = relay.var("x", shape=(2, 8))
    a, b = relay.split(relay.tanh(x), 2, 1)
    a, b = relay.nn.softmax(relay.reshape(a, (4, 2)), 1), relay.nn.softmax(relay.reshape(b, (2, 2, 2)), 2)
    lib = relay.build(IRModule.from_expr(relay.Function([x], relay.Tuple([a, b]))), target="llvm")
    g = graph_executor.GraphModule(lib["default"](ns.cpu()))
    data = np.arange(16, dtype="float32").reshape(2, 8) / 8
    g.run(x=data)
    for i, shape in enumerate(((4, 2), (2, 2, 2))):
        e = np.exp(np.tanh(data[:, 4 * i : 4 * i + 4]).reshape(shape))
        np.testing.assert_allclose(g.get_output(i).numpy(), e / e.sum(-1, keepdims=True), rtol=1e-5)
