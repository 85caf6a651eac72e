"""``nestsmith.compile``: what goes in comes out as the user's own kind of array, correct, without aliases, and errors have names."""

import copy
import functools
import os
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import small_models as s
from onnx import helper

import nestsmith
from nestsmith import auto_scheduler, relay
from nestsmith.auto_scheduler import display
from nestsmith.compiled import schedules


def quick(model, *args, **kwargs):
    return nestsmith.compile(model, *args, **{"guess": False, "verbose": 0, "target": "llvm", **kwargs})


def data(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


@pytest.fixture(scope="module")
def net():
    return s.convolutions()


@pytest.fixture
def compiled(net):
    return quick(net)


def test_numpy_in_numpy_out(net, compiled):
    x = data(1, 3, 16, 16)
    want = s.reference(net, x=x)[0]
    for out in (compiled(x), compiled(x=x), compiled(np.asfortranarray(x)), compiled(nestsmith.nd.array(x))):
        assert isinstance(out, np.ndarray) and s.close(out, want)
    out[:] = 0  # the caller's own


def test_sources_of_a_model(net, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(net.SerializeToString())
    mod, params = relay.frontend.from_onnx(net, freeze_params=False)
    x = data(1, 3, 16, 16)
    outs = [quick(m)(x) for m in (path, str(path), net.SerializeToString(), (mod, params))]
    assert all(np.array_equal(o, outs[0]) for o in outs)
    kept = quick(path, x)
    assert set(kept.params) == {"w1", "b1", "w2", "w3"} and "main" in kept.mod and kept.lib.graph_json and kept.name == "net"


def test_tensors_in_tensors_out(net, compiled):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(data(1, 3, 16, 16))
    out = compiled(x.requires_grad_())
    assert isinstance(out, torch.Tensor) and not out.requires_grad
    assert s.close(out, s.reference(net, x=x.detach().numpy())[0])


def test_results_stay_what_they_were():
    """Large outputs are written where the caller gets them, so a later call must not reach them; nor may an output that is an
    input, or is returned twice, be shared with anything."""
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"]), helper.make_node("Flatten", ["y"], ["w"])]
    net = quick(s.model(nodes, {"x": [8, 32, 32]}, ["y", "z", "w"]))
    first, second = data(8, 32, 32), data(8, 32, 32, seed=2)
    one = net(first)
    two = net(second)
    for out, x in ((one, first), (two, second)):
        assert isinstance(out, tuple) and len(out) == 3
        assert np.array_equal(out[0], np.maximum(x, 0)) and np.array_equal(out[1], x)
        assert np.array_equal(out[2], np.maximum(x, 0).reshape(8, -1))
    one[1][:] = 7
    one[0][:] = 7
    assert np.array_equal(one[2], np.maximum(first, 0).reshape(8, -1))
    assert np.array_equal(first, data(8, 32, 32)) and np.array_equal(net(second)[1], second)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_small_results_belong_to_the_caller(dtype):
    """A small output is copied from a place that the module keeps: what it returns is never that place."""
    torch = pytest.importorskip("torch")
    net = quick(torch.nn.ReLU().eval(), (torch.zeros(4, 4, dtype=getattr(torch, dtype)),))
    first, second = (torch.randn(4, 4).to(getattr(torch, dtype)) for _ in range(2))
    with torch.inference_mode():
        one = net(first)
    two = net(second)
    assert torch.equal(one, first.relu()) and torch.equal(two, second.relu())
    two.add_(1)  # a tensor of inference would refuse to be part of a graph of gradients, this one does not
    assert not two.is_inference() and one.is_inference()
    assert torch.equal(net(first), first.relu()) and torch.equal(two, second.relu() + 1)
    if dtype == "float32":
        arrays = np.asarray(net(first.numpy())), np.asarray(net(second.numpy()))
        assert all(np.array_equal(a, x.relu()) for a, x in zip(arrays, (first, second)))


def test_no_copy_of_large_tensors_and_none_is_written():
    torch = pytest.importorskip("torch")
    net = quick(s.model([helper.make_node("Neg", ["x"], ["y"])], {"x": [64, 256]}, ["y"]))
    x = torch.from_numpy(data(64, 256)).clone()
    assert x.data_ptr() % 64 == 0
    out = net(x)
    before = x.clone()
    x *= 2
    net.runtime.run()  # reads the tensor's own memory
    assert np.array_equal(net.runtime.get_output(0).numpy(), -x.numpy()) and torch.equal(out, -before)
    x /= 2
    whole = np.zeros(64 * 256 + 16, "float32")
    begin = 1 + -whole.ctypes.data % 64 // 4
    unaligned = whole[begin : begin + 64 * 256].reshape(64, 256)
    unaligned[:] = 3
    assert np.array_equal(net(unaligned), -unaligned)
    assert np.array_equal(net(nestsmith.nd.from_dlpack(unaligned)), -unaligned)
    assert torch.equal(net(x.t().contiguous().t()), -x)
    net(torch.zeros(64, 256))
    assert torch.equal(x, before)


def test_the_same_memory_again_is_lent_once_and_looked_at_each_time():
    torch = pytest.importorskip("torch")
    net = quick(s.model([helper.make_node("Neg", ["x"], ["y"])], {"x": [128, 128]}, ["y"]))
    x = torch.from_numpy(data(128, 128)).clone()
    entry = net.runtime.core.inputs()[0][1][0]
    assert torch.equal(net(x), -x)
    lent = net.runtime.core.bound(entry)
    assert lent.address == x.data_ptr()
    x *= 2
    assert torch.equal(net(x), -x) and torch.equal(net(x.detach()), -x) and np.array_equal(net(x.numpy()), -x.numpy())
    assert net.runtime.core.bound(entry) is lent
    assert torch.equal(net(x.t()), -x.t())  # begins at the same place
    assert torch.equal(net(torch._neg_view(x)), x)  # the very same memory, negated when it is read
    assert torch.equal(net(x), -x)
    net.runtime.set_input_zero_copy("x", None)
    net.runtime.set_input("x", np.zeros((128, 128), "float32"))
    assert torch.equal(net(x), -x)


def test_a_call_of_a_known_kind_is_short():
    """A network of a millisecond is called a thousand times a second: what stands around it are few functions, once the kind of its
    arrays is known."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x = torch.randn(1, 3, 64, 64)
    net = quick(torch.nn.Conv2d(3, 4, 3).eval(), (x,))
    names, want = [], net(x)

    def note(frame, event, arg):
        if event == "call" and f"nestsmith{os.sep}" in frame.f_code.co_filename:
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        out = net(x)
    finally:
        sys.setprofile(None)
    assert torch.equal(out, want) and "run" in names and len(names) < 50, names
    with pytest.raises(TypeError, match="holds float64"):
        net(x.double())
    with pytest.raises(ValueError, match="has shape"):
        net(x[:, :, 1:])


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "words"),
    [
        ((), {}, TypeError, "no value for input 'x'"),
        ((1, 2), {}, TypeError, "takes 1 inputs"),
        ((), {"X": 1}, TypeError, "no input 'X'; did you mean 'x'"),
        ((np.zeros((1, 3, 16, 16), "float32"),), {"x": 1}, TypeError, "given twice"),
        ((np.zeros((2, 3, 16, 16), "float32"),), {}, ValueError, "input 'x' has shape (2, 3, 16, 16); the network was compiled for (1, 3, 16, 16)"),
        ((np.zeros((1, 3, 16, 16)),), {}, TypeError, "input 'x' holds float64; the network was compiled for float32"),
    ],
)
def test_wrong_calls(compiled, args, kwargs, error, words):
    with pytest.raises(error) as e:
        compiled(*args, **kwargs)
    assert words in str(e.value)


def _twice():
    x = relay.var("x", shape=(2, 3))
    return relay.Function([x], relay.add(x, x))


@pytest.mark.parametrize(
    ("model", "more", "error", "words"),
    [
        (3, {}, TypeError, "model is int; nestsmith.compile takes"),
        ("none.onnx", {}, FileNotFoundError, "none.onnx"),
        (b"rubbish", {}, ValueError, "no readable ONNX model"),
        (_twice(), {"target": "lvm"}, ValueError, "lvm"),
        (_twice(), {"layout": "NHCW"}, ValueError, "layout 'NHCW' is unknown; did you mean 'NHWC'"),
        (_twice(), {"precision": "float8"}, ValueError, "precision 'float8' is unknown"),
        (_twice(), {"trials": -1}, ValueError, "trials is -1"),
        (_twice(), {"trials": 1.5}, TypeError, "trials is 1.5"),
        (_twice(), {"device": nestsmith.cuda(0)}, ValueError, "device is cuda(0); the target llvm runs on cpu(0)"),
        (_twice(), {"shape": {"x": (1,)}}, ValueError, "shape is for ONNX models"),
        (_twice(), {"example_inputs": {"y": data(2, 3)}}, ValueError, "example_inputs names 'y'"),
        (_twice(), {"example_inputs": data(3, 3)}, ValueError, "example input 'x' has shape (3, 3); the network has (2, 3)"),
        (_twice(), {"example_inputs": np.zeros((2, 3))}, ValueError, "example input 'x' holds float64; the network takes float32"),
        (s.convolutions(), {"example_inputs": [data(1, 3, 16, 16)] * 2}, ValueError, "example_inputs holds 2 arrays; the network takes 1: x"),
        (s.convolutions(), {"example_inputs": np.zeros((1, 3, 16, 16))}, ValueError, "example input 'x' holds float64"),
        (s.convolutions(), {"shape": {"x": 3}}, TypeError, "shape['x'] is 3; it must be a tuple of integers"),
        (s.convolutions("n"), {}, ValueError, "the shape of input 'x'"),
    ],
)
def test_wrong_arguments(model, more, error, words):
    with pytest.raises(error) as e:
        quick(model, **more)
    assert words in str(e.value)


def test_shapes_left_open_come_from_examples_or_by_name():
    proto = s.convolutions("n")
    x = data(2, 3, 16, 16)
    want = s.reference(proto, x=x)[0]
    for more in ({"example_inputs": x}, {"example_inputs": [x]}, {"example_inputs": {"x": x}}, {"shape": {"x": (2, 3, 16, 16)}}):
        assert s.close(quick(proto, **more)(x), want)


def test_layouts(net):
    x = data(1, 3, 16, 16)
    want = s.reference(net, x=x)[0]
    texts = {}
    for layout in ("auto", "keep", "NHWC", "NCHW"):
        made = quick(net, layout=layout)
        assert s.close(made(x), want)
        texts[layout] = made.lib.graph_json
    assert texts["auto"] == texts["NHWC"] != texts["keep"] == texts["NCHW"]


@pytest.mark.parametrize(("precision", "most"), [("float16", 5e-3), ("bfloat16", 2e-2)])
def test_precision(net, precision, most):
    """It computes in 16 bits; what goes in and comes out stays what it is, one output or several."""
    x = data(1, 3, 16, 16)
    want = s.reference(net, x=x)[0]
    made = quick(net, precision=precision)
    out = made(x)
    assert out.dtype == np.float32 and np.abs(out - want).max() <= most * np.abs(want).max() and precision in made.lib.graph_json
    two = s.convolutions()
    two.graph.output.append(helper.make_tensor_value_info("d", 1, None))
    outs = quick(two, precision=precision)(x)
    assert [o.dtype for o in outs] == [np.float32] * 2 and outs[1].shape == (1, 16, 16, 16)


def test_target_is_told_in_a_line(capsys):
    net = nestsmith.compile(_twice(), guess=False)
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(f"nestsmith: target {net.target.kind.name}, ")


def product(tail, features=24):
    """A product with an element-wise tail."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"])]
    for k, op in enumerate(tail):
        nodes.append(helper.make_node(op, [nodes[-1].output[0]], [f"t{k}"]))
    return s.model(nodes, {"x": [8, 32]}, [nodes[-1].output[0]], [s.weights(rng, "w", 32, features)])


def records(log):
    return sum(1 for _ in auto_scheduler.load_records(str(log)))


def test_tuning_goes_on_from_the_log_and_serves_similar_tasks(tmp_path, own_logs):
    x, log = data(8, 32), tmp_path / "tuned.json"
    proto = product(["Relu"])
    made = quick(proto, trials=6, log=log)
    assert records(log) == 6 and made.report().origins() == {"log record": 1}
    quick(proto, trials=6, log=log)
    assert records(log) == 6
    quick(proto, trials=9, log=log)
    assert records(log) == 9
    # another tail on the same main stage; nothing is measured
    both = product(["Relu"])
    both.graph.node.extend([helper.make_node("MatMul", ["x", "v"], ["b"]), helper.make_node("Tanh", ["b"], ["z"])])
    both.graph.initializer.append(s.weights(np.random.default_rng(5), "v", 32, 24))
    both.graph.output.append(helper.make_tensor_value_info("z", 1, None))
    other = quick(both, log=log)
    assert records(log) == 9
    assert {k.split(" (")[0]: n for k, n in other.report().origins().items()} == {"log record": 1, "similar task": 1}
    assert all(s.close(o, r) for o, r in zip(other(x), s.reference(both, x=x), strict=True))
    assert quick(product(["Relu"], 7), log=log).report().origins() == {"default": 1}
    # the user's directory is looked into without being named
    assert quick(proto).report().origins() == {"default": 1}
    own_logs.mkdir()
    (own_logs / "any.json").write_bytes(log.read_bytes())
    assert quick(proto).report().origins() == {"log record": 1}


def test_batch_sizes_serve_each_other(tmp_path, own_logs):
    """A network in another batch size, larger or smaller, gets the schedules of the one that was tuned, fitted to it."""
    proto, log = product(["Relu"]), tmp_path / "tuned.json"
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert quick(proto, shape={"batch": 12}, trials=4, log=log).report().origins() == {"log record": 1}
    for batch, origin in (12, "log record"), (1, other := "similar task (other sizes)"), (4, other), (24, other), (5, "default"):
        made, x = quick(proto, shape={"batch": batch}, log=log), data(batch, 32)
        assert made.report().origins() == {origin: 1}
        assert s.close(made(x), s.reference(proto, x=x)[0])
    assert records(log) == 4


def test_records_go_to_the_users_directory(own_logs, monkeypatch):
    quick(product(["Relu"]), trials=2)
    assert [p.name for p in own_logs.glob("*.json")] == ["llvm.json"] and records(own_logs / "llvm.json") == 2
    monkeypatch.setenv("NESTSMITH_LOG_DIR", "")
    with pytest.raises(ValueError, match="NESTSMITH_LOG_DIR is empty.*log="):
        quick(product(["Relu"]), trials=2)
    assert schedules.known_logs(None) == []


def test_seconds_end_tuning(tmp_path):
    log = tmp_path / "clock.json"
    made = quick(product(["Relu"]), log=log, tune_seconds=2)
    assert records(log) < schedules.PER_TASK and made(data(8, 32)).shape == (8, 24)


def test_a_run_by_the_clock_comes_to_every_task():
    """Rounds are half of what a task's share of the seconds has time for, and finals take less of it."""
    assert schedules.pace(18000, None, 18, True) == schedules.pace(18000, 3600, 18, True) == (64, 100)
    assert schedules.pace(18000, 20, 18, True) == (16, 33) and schedules.pace(18000, 1, 18, True) == (4, 20)
    assert schedules.pace(180, 20, 18, True) == (8, 33)  # few trials: as without a clock
    assert schedules.pace(18000, 40, 18, False) == (4, 40) and schedules.pace(18000, 3600, 18, False) == (64, 40)


@pytest.mark.parametrize(
    "tasks, cooldown, seconds, late, off",
    [(5, 1.0, 16, 0.4, 6), pytest.param(22, 1.5, 150, 0.1, 12, marks=[pytest.mark.full, pytest.mark.long])],
)
def test_a_slow_device_gets_smaller_rounds(tmp_path, monkeypatch, tasks, cooldown, seconds, late, off):
    """Each task gets a trial although trials take many times as long as rounds of four have time for, the run ends in time, and what it
    says of the time to go is true: to `off` seconds in the short run, to a quarter in the long one. A trial is two runs and two pauses."""
    monkeypatch.setattr(schedules, "LocalRunner", functools.partial(schedules.LocalRunner, cooldown_interval=cooldown))
    shown, run, end_of_round, tune = [], [], display.Progress.round_line, schedules.TaskScheduler.tune

    def round_line(progress):
        end_of_round(progress)
        shown.append((time.time(), progress.rate()[1], progress.line()))

    def timed(*args, **kwargs):
        run.append(time.time())
        tune(*args, **kwargs)
        run.append(time.time())

    monkeypatch.setattr(display.Progress, "round_line", round_line)
    monkeypatch.setattr(schedules.TaskScheduler, "tune", timed)
    xs = [relay.var(f"x{k}", shape=(8, 16 + k)) for k in range(tasks)]
    products = [relay.nn.dense(x, relay.const(np.ones((4, 16 + k), "float32"))) for k, x in enumerate(xs)]
    log = tmp_path / "slow.json"
    quick(relay.Function(xs, relay.Tuple(products)), log=log, tune_seconds=seconds, verbose=1)
    assert len({inp.task.workload_key for inp, _ in auto_scheduler.load_records(str(log))}) == tasks
    begin, end = run
    assert abs(end - begin - seconds) <= late * seconds
    for at, left, line in shown[2:]:
        assert " trials " in line and "/" not in line.split(" trials ")[1].split("best")[0]
        assert abs(at + left - end) < off
        assert at < begin + 20 or abs(left - (end - at)) <= max(0.25 * (end - at), 2)


def test_too_few_trials_become_one_for_each_task(net, tmp_path, capsys):
    log = tmp_path / "few.json"
    quick(net, trials=1, log=log, verbose=1)
    assert records(log) == len({inp.task.workload_key for inp, _ in auto_scheduler.load_records(str(log))}) > 1
    assert "each gets one trial" in capsys.readouterr().out


def test_first_choice_of_the_search():
    made, again = (quick(product(["Relu"]), guess=True) for _ in range(2))
    assert made.report().origins() == {"first choice of the search": 1}
    assert made.lib.get_lib().get_source() == again.lib.get_lib().get_source()
    x = data(8, 32)
    assert s.close(made(x), s.reference(product(["Relu"]), x=x)[0])


def test_report_and_export(net, compiled, tmp_path):
    report = compiled.report(3)
    assert [r.schedule for r in report.rows] == ["default"] * len(report.rows) and abs(sum(r.share for r in report.rows) - 1) < 1e-6
    assert report.kernels == sum(r.seconds for r in report.rows) and report.total > 0
    by_name = {r.name: r for r in report.rows}
    first = by_name["layout_transform_nn_conv2d_add_nn_relu"]
    assert round(first.gflops * first.seconds * 1e9) == 2 * 16 * 16 * 16 * 27 + 2 * 16 * 16 * 16  # as relay's tasks count
    assert round(first.gbytes * first.seconds * 1e9) == 4 * (16 * 16 * 3 + 16 * 27 + 16 + 16 * 16 * 16) and first.limit > 0
    assert first.layer == "first" and [r.name for r in report.rows if r.layer == "second"] == [
        "nn_contrib_conv2d_winograd_without_weight_transform_nn_relu"
    ]
    text = str(report)
    assert "GFLOP/s" in text and first.name in text and "one after the other" in text
    path = compiled.export(tmp_path / "net.tar")
    again = nestsmith.load(path)
    x = data(1, 3, 16, 16)
    assert np.array_equal(again(x), compiled(x)) and again.inputs == compiled.inputs
    assert [(r.name, r.layer, r.schedule) for r in again.report(1).rows] == [(r.name, r.layer, r.schedule) for r in report.rows]


def test_load_refuses_other_files(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        nestsmith.load(tmp_path / "none.tar")


@pytest.mark.skipif(not nestsmith.opencl(0).exist, reason="no OpenCL device")
def test_opencl(net):
    x = data(1, 3, 16, 16)
    made = quick(net, target="opencl")
    want = s.reference(net, x=x)[0]
    assert s.close(made(x), want) and s.close(made(nestsmith.nd.array(x, made.device)), want)
    assert all(r.limit is None for r in made.report(1).rows)


def test_threads_take_turns(net, compiled):
    inputs = [data(1, 3, 16, 16, seed=k) for k in range(16)]
    with ThreadPoolExecutor(4) as pool:
        for x, out in zip(inputs, pool.map(compiled, inputs)):
            assert s.close(out, s.reference(net, x=x)[0])


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_copies_are_refused(compiled, copied):
    with pytest.raises(TypeError, match="export"):
        copied(compiled)


def test_nothing_to_compute():
    made = quick(s.model([helper.make_node("Identity", ["x"], ["y"])], {"x": [2, 3]}, ["y"]))
    assert np.array_equal(made(data(2, 3)), data(2, 3)) and made.report(1).rows == [] and "Schedules: none" in str(made.report(1))


def test_benchmark_before_the_first_call(compiled):
    assert compiled.benchmark(repeat=2, number=1, min_repeat_ms=0).min > 0
