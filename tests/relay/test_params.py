"""Values that reach nothing and values that nobody gave: names in params that match no parameter, inputs that were never
set, memory that nobody wrote."""

import gc
import warnings

import numpy as np
import pytest
from networks import SMALL

import nestsmith as ns
from nestsmith import IRModule, auto_scheduler, check, nd, relay, te
from nestsmith.contrib import graph_executor
from nestsmith.contrib.target.onnx import to_onnx

CPU = ns.cpu(0)


def dotted(params):
    return {k.replace("_", "."): v for k, v in params.items()}


def warned(call, *words):
    """`call()` warns once, with all of `words`; its result."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        out = call()
    texts = [str(w.message) for w in seen]
    assert len(texts) == 1 and all(w in texts[0] for w in words), texts
    return out


def quiet(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call()


def module(lib):
    return graph_executor.GraphModule(lib["default"](CPU))


@pytest.mark.parametrize(
    "name,known,want",
    [
        ("layer.0.weight", ["layer_0_bias", "layer_1_weight", "layer_0_weight"], "layer_0_weight"),
        ("FC1_WEIGHT", ["fc1_weight", "fc2_weight"], "fc1_weight"),
        ("a.b", ["b_a", "a_b"], "a_b"),
        ("fc1_wieght", ["fc1_weight", "data"], "fc1_weight"),
        ("nothing", ["data"], None),
    ],
)
def test_nearest_name(name, known, want):
    assert check.nearest(name, known) == ([want] if want else [])


def test_names_that_match_no_parameter():
    mod, params = SMALL["mlp"]()
    words = "'fc1.weight' (did you mean 'fc1_weight'?)", "and 2 more; the", "'fc2_weight' and 3 more"
    warned(lambda: relay.build(mod, "llvm", params=dotted(params)), *words)
    warned(lambda: auto_scheduler.extract_tasks(mod, dotted(params), "llvm"), *words)
    warned(lambda: relay.optimize(mod, "llvm", dotted(params)), *words)
    quiet(lambda: auto_scheduler.extract_tasks(mod, params, "llvm"))
    warned(lambda: auto_scheduler.extract_tasks(mod, {**params, "other": np.ones(3)}, "llvm"), "'other'")


def test_the_onnx_export_tells_them_too():
    pytest.importorskip("onnx")
    x = relay.var("x", shape=(2, 3))
    f = relay.Function([x, (w := relay.var("w_0", shape=(4, 3)))], relay.nn.dense(x, w))
    warned(lambda: to_onnx(f, {"w.0": np.ones((4, 3), "float32")}), "'w.0' (did you mean 'w_0'?)")
    assert [i.name for i in quiet(lambda: to_onnx(f, {"w_0": np.ones((4, 3), "float32")})).graph.input] == ["x"]


def test_parameter_files_with_other_names():
    mod, params = SMALL["mlp"]()
    lib = relay.build(mod, "llvm")
    m, other = module(lib), module(lib)
    warned(lambda: m.load_params(relay.save_param_dict(dotted(params))), "'fc1.weight' (did you mean 'fc1_weight'?)")
    data = relay.save_param_dict(params)
    quiet(lambda: m.load_params(data))
    quiet(lambda: other.share_params(m, data))
    warned(lambda: other.share_params(m, relay.save_param_dict({"fc9": np.ones(1)})), "'fc9'")
    x = np.ones((1, 1, 28, 28), "float32")
    m.run(data=x)
    other.run(data=x)
    assert np.array_equal(m.get_output(0).numpy(), other.get_output(0).numpy())
    bound = module(relay.build(mod, "llvm", params=params))
    for load in (lambda: bound.load_params(data), lambda: bound.share_params(m, data)):
        warned(load, "fc1_bias, fc1_weight, fc2_bias and 3 more became constants", "build without params=")
    quiet(lambda: bound.load_params(relay.save_param_dict({"data": x})))


def test_inputs_that_were_never_set():
    mod, params = SMALL["mlp"]()
    m = module(relay.build(mod, "llvm"))
    assert not m.get_output(0).numpy().any() and not m.get_input("data").numpy().any()
    with pytest.raises(ValueError, match="6 of .* 'fc1_weight', 'fc1_bias', .*'fc3_bias'; set_input"):
        m.run(data=np.ones((1, 1, 28, 28), "float32"))
    warned(lambda: m.benchmark(CPU, repeat=1, number=1), "zeros", "'fc1_weight'")
    m.run(**params)
    quiet(lambda: m.benchmark(CPU, repeat=1, number=1))
    m = module(relay.build(mod, "llvm", params=params))
    with pytest.raises(ValueError, match="1 of the network's inputs was never set: 'data'"):
        m.run()
    m.set_input_zero_copy("data", nd.empty((1, 1, 28, 28)))
    m.run()
    m.set_input_zero_copy("data", None)
    with pytest.raises(ValueError, match="'data'"):
        m.run()
    m.run(data=np.ones((1, 1, 28, 28)))
    m.run()


def test_an_input_that_nothing_reads_needs_no_value():
    x, unused, out = (relay.var(n, shape=(2, 6)) for n in ("x", "unused", "out"))
    f = relay.Function([x, unused, out], relay.Tuple([relay.exp(x), relay.reshape(out, (3, 4))]))
    m = module(relay.build(IRModule.from_expr(f), "llvm"))
    m.set_input("x", np.zeros((2, 6), "float32"))
    with pytest.raises(ValueError, match="was never set: 'out'"):
        m.run()
    m.set_input("out", np.arange(12).reshape(2, 6))
    m.run()
    assert m.get_output(0).numpy().min() == 1 and np.array_equal(m.get_output(1).numpy().ravel(), np.arange(12))
    m.set_output_zero_copy(1, nd.empty((3, 4)))  # the input moves there, its value does not
    with pytest.raises(ValueError, match="was never set: 'out'"):
        m.run()


def test_empty_arrays_are_zero():
    for size in (1 << 10, 1 << 22):  # small ones come back from the allocator as they were left
        a = [nd.array(np.full(size, 7, "uint8")) for _ in range(8)]
        del a
        gc.collect()
        assert not any(nd.empty((size,), "uint8").numpy().any() for _ in range(8))
    assert nd.empty((0, 3)).numpy().shape == (0, 3)


# ---- fixed inputs of tasks -----------------------------------------------------------------------------------------


@auto_scheduler.register_workload
def scaled(n):
    a, s = te.placeholder((n,), name="values"), te.placeholder((n,), name="scale")
    return [a, s, te.compute((n,), lambda i: a[i] * s[i], name="out")]


def test_fixed_inputs_by_name():
    data = np.arange(16, dtype="float32")
    task = auto_scheduler.SearchTask(func=scaled, args=(16,), target="llvm", task_inputs={"scale": nd.array(data)})
    got = task.fixed_inputs()
    assert got[0] is None and np.array_equal(got[1], data) and got[2] is None
    task = auto_scheduler.SearchTask(
        func=scaled, args=(16,), target="llvm", task_inputs={"scales": nd.array(data)}, task_inputs_overwrite=True
    )
    options = auto_scheduler.TuningOptions(num_measure_trials=2, verbose=0)
    with pytest.raises(ValueError, match=r"no input is called 'scales' \(did you mean 'scale'\?\); there are values, sc"):
        task.tune(options)


@pytest.mark.parametrize("data", [np.zeros((4, 4), "float32"), np.zeros(16, "int32"), np.zeros(8, "float32")])
def test_fixed_inputs_have_the_shape_and_type_of_the_input(data):
    task = auto_scheduler.SearchTask(
        func=scaled, args=(16,), target="llvm", task_inputs={"scale": nd.array(data)}, task_inputs_overwrite=True
    )
    with pytest.raises(ValueError, match=rf"task_inputs for scale is {data.dtype} \({data.shape[0]}.*takes float32 \(16,\)"):
        task.fixed_inputs()


def test_fixed_inputs_by_a_function(monkeypatch):
    from nestsmith.auto_scheduler import search_task

    monkeypatch.setattr(search_task, "_CHECK_FUNCS", {})
    auto_scheduler.register_task_input_check_func("test", lambda tensors: {tensors[0]: "sparse_values"})
    data = np.arange(16, dtype="float32")
    task = auto_scheduler.SearchTask(func=scaled, args=(16,), target="llvm", task_inputs={"sparse_values": nd.array(data)})
    assert np.array_equal(task.fixed_inputs()[0], data)
