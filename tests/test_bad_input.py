"""What users get wrong: each mistake raises one exception that names the argument, the value and what to do."""

import gzip
import importlib
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _absent, _core, auto_scheduler, relay, te, transform
from nestsmith.contrib import graph_executor
from nestsmith.relay import testing
from nestsmith.target import Target

DATA = pathlib.Path(__file__).parent / "data"
FOREIGN = '["1097323f3970e5c881ad3a0028ca79cb", [1, 14, 14, 256], [4, 4, 256, 256], [1, 1, 1, 256], [1, 14, 14, 257]]'


@pytest.fixture(scope="module")
def mlp():
    return testing.mlp.get_workload(1)


@pytest.fixture(scope="module")
def tasks(mlp):
    return auto_scheduler.extract_tasks(mlp[0]["main"], mlp[1], "llvm")


@pytest.fixture(scope="module")
def module(mlp):
    return graph_executor.GraphModule(relay.build(mlp[0], "llvm", params=mlp[1])["default"](ns.cpu(0)))


def conv(**attrs):
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    return relay.Function([x, w], relay.nn.conv2d(x, w, **attrs))


def refuses(call, error, *words):
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert all(w in text for w in words), text
    assert len(text) < 800 and "\n" not in text.strip(), text


NETWORKS = [
    (lambda: testing.resnet.get_workload(layout="NCWH"), "layout 'NCWH'", "NHWC"),
    (lambda: testing.resnet.get_workload(num_layers=17), "num_layers 17", "18, 34, 50"),
    (lambda: testing.resnet.get_workload(dtype="float31"), "'float31'", "float32"),
    (lambda: testing.resnet.get_workload(dtype="complex64"), "'complex64'", "float32"),
    (lambda: testing.resnet.get_workload(layout="NHWC", image_shape=(3, 224, 224)), "(3, 224, 224)", "NHWC"),
    (lambda: testing.resnet.get_workload(image_shape=(224, 224)), "image_shape", "CHW"),
    (lambda: testing.resnet.get_workload(batch_size=0), "batch_size is 0", "at least 1"),
    (lambda: relay.build(ns.IRModule.from_expr(conv(data_layout="NHCW")), "llvm"), "nn.conv2d", "OIHW"),
    (lambda: te.placeholder((3,), "floot32"), "'floot32'", "float32"),
    (lambda: te.placeholder((-3,)), "-3", "negative"),
]


@pytest.mark.parametrize(("call", "words"), [(n[0], n[1:]) for n in NETWORKS])
def test_networks(call, words):
    refuses(call, ValueError, *words)


def test_operators_that_a_type_does_not_have():
    mod, params = testing.mlp.get_workload(1, dtype="int8")
    refuses(lambda: relay.build(mod, "llvm", params=params), ValueError, "softmax", "int8", "cast")
    with pytest.raises(AttributeError, match="resnext"):
        testing.resnext.get_workload()


TARGETS = [
    ("cudaa", "'cudaa'", "did you mean 'cuda'"),
    ("cuda -archh=sm_90", "'archh'", "did you mean 'arch'"),
    ("cuda -arch=90", "'90'", "sm_90"),
    ("cuda -max_threads_per_block=many", "max_threads_per_block", "'many'", "integer"),
    ("", "empty", "cuda"),
]


@pytest.mark.parametrize(("text", "words"), [(t[0], t[1:]) for t in TARGETS])
def test_targets(text, words, mlp):
    refuses(lambda: Target(text), ValueError, *words)
    refuses(lambda: auto_scheduler.extract_tasks(mlp[0]["main"], mlp[1], text), ValueError, *words)


def test_devices():
    refuses(lambda: ns.device("foo", 0), ValueError, "'foo'", "cuda")
    refuses(lambda: ns.cpu(-1), ValueError, "-1")


def test_parameters(mlp):
    extract = auto_scheduler.extract_tasks
    refuses(lambda: extract("resnet", None, "llvm"), TypeError, "str")
    refuses(lambda: extract(mlp[0], [1, 2], "llvm"), TypeError, "params", "list", "dictionary")
    wrong = {"fc1_weight": np.zeros((3, 3), "float32")}
    refuses(lambda: extract(mlp[0], wrong, "llvm"), ValueError, "fc1_weight", "(3, 3)", "(128, 784)")
    refuses(lambda: extract(mlp[0], mlp[1], None), ValueError, "target")
    refuses(lambda: relay.build(mlp[0], params=mlp[1]), ValueError, "target")


def test_keys(tasks):
    task = auto_scheduler.SearchTask
    refuses(lambda: task(workload_key=FOREIGN, target="llvm"), ValueError, "257", "not registered", "extract")
    refuses(lambda: task(workload_key="hello", target="llvm"), ValueError, "'hello'", "workload key")
    refuses(lambda: task(func="nothing", args=(), target="llvm"), ValueError, "'nothing'", "register_workload")
    refuses(lambda: task(workload_key=tasks[0][0].workload_key), AssertionError, "target")
    hardware = auto_scheduler.HardwareParams
    refuses(lambda: hardware(num_cores=4), ValueError, "vector_unit_bytes")
    refuses(lambda: hardware(num_cores="four", target="llvm"), TypeError, "num_cores", "'four'")
    refuses(
        lambda: task(workload_key=tasks[0][0].workload_key, target="llvm", hardware_params=(1, 2)),
        TypeError,
        "HardwareParams",
        "tuple",
    )


OPTIONS = [
    ({"num_measure_trials": -5}, ValueError, "num_measure_trials is -5"),
    ({"num_measure_trials": "many"}, TypeError, "num_measure_trials is 'many'"),
    ({"num_measures_per_round": 0}, ValueError, "num_measures_per_round is 0"),
    ({"early_stopping": "x"}, TypeError, "early_stopping is 'x'"),
    ({"builder": "rpc"}, ValueError, "'rpc'", "local"),
    ({"runner": 5}, ValueError, "runner=5"),
    ({"measure_callbacks": "log.json"}, TypeError, "measure_callbacks", "list"),
    ({"measure_callbacks": ["log.json"]}, TypeError, "'log.json'", "RecordToFile"),
]


@pytest.mark.parametrize(("given", "error", "words"), [(o[0], o[1], o[2:]) for o in OPTIONS])
def test_tuning_options(given, error, words):
    refuses(lambda: auto_scheduler.TuningOptions(**given), error, *words)


def test_scheduler_and_policies(tasks):
    scheduler, options = auto_scheduler.TaskScheduler, auto_scheduler.TuningOptions
    refuses(lambda: scheduler(["a"]), TypeError, "'a'", "extract_tasks")
    refuses(lambda: scheduler(tasks[0], [1]), ValueError, "1 task weights", str(len(tasks[0])))
    refuses(lambda: scheduler(tasks[0], strategy="greedy"), AssertionError, "'greedy'", "round-robin")
    tuner = scheduler(tasks[0], callbacks=[])
    refuses(lambda: tuner.tune(options(2)), ValueError, f"at least {len(tasks[0])}")
    refuses(lambda: tuner.tune(options(64), search_policy="sketch.magic"), ValueError, "sketch.magic", "sketch.random")
    policy = auto_scheduler.SketchPolicy
    refuses(lambda: policy(tasks[0][0], params={"eps_gredy": 0.1}), ValueError, "'eps_gredy'", "eps_greedy")
    refuses(lambda: policy(tasks[0][0], params={"eps_greedy": "x"}), TypeError, "eps_greedy")


def test_builders_and_runners():
    refuses(lambda: auto_scheduler.LocalRunner(repeat=-1), ValueError, "repeat is -1")
    refuses(lambda: auto_scheduler.LocalRPCMeasureContext(timeout=0), ValueError, "timeout is 0")
    for rest in (-1, float("nan"), float("inf")):
        refuses(lambda rest=rest: auto_scheduler.LocalRunner(cooldown_interval=rest), ValueError, f"cooldown_interval is {rest}", "finite")
    refuses(lambda: auto_scheduler.LocalRunner(cooldown_interval="x"), TypeError, "cooldown_interval is 'x'")
    refuses(lambda: auto_scheduler.LocalBuilder(n_parallel=-2), ValueError, "n_parallel is -2")
    refuses(lambda: auto_scheduler.LocalBuilder(timeout="x"), TypeError, "timeout is 'x'")


# ---- records ----


def public_log(folder):
    path = folder / "public.json"
    path.write_bytes(gzip.decompress((DATA / "tvm-resnet-18-NHWC-B1-cuda.json.gz").read_bytes()))
    return path


def test_records(tasks, tmp_path, caplog):
    log = public_log(tmp_path)
    line = log.read_text().splitlines()[0]
    refuses(lambda: _core.record_parse(line.replace('"SP"', '"XX"')), ValueError, "i[1][1]", "unknown step")
    refuses(lambda: _core.record_parse(line[:-30]), ValueError, "malformed record")
    other = tmp_path / "notes.txt"
    other.write_text("hello\nworld\n")
    refuses(lambda: list(auto_scheduler.load_records(str(other))), ValueError, "notes.txt", "line 1", "tuning log")
    refuses(lambda: auto_scheduler.ApplyHistoryBest(str(other)), ValueError, "notes.txt", "tuning log")
    missing = str(tmp_path / "missing.json")
    refuses(lambda: auto_scheduler.ApplyHistoryBest(missing, strict=True), FileNotFoundError, "missing.json")
    refuses(lambda: tasks[0][0].apply_best(str(log)), RuntimeError, "24 records read, 0 of this workload")
    auto_scheduler.ApplyHistoryBest(missing)
    assert "missing.json does not exist; default schedules will be used" in caplog.text


def test_records_of_another_target_or_task(tmp_path, caplog):
    """A log for a GPU does not help a CPU build: default schedules, and one warning that says why."""
    mod, params = testing.mlp.get_workload(1)
    gpu, _ = auto_scheduler.extract_tasks(mod["main"], params, "cuda -arch=sm_90")
    log = tmp_path / "gpu.json"
    inputs = [auto_scheduler.MeasureInput(t, t.compute_dag.get_init_state()) for t in gpu]
    auto_scheduler.save_records(str(log), inputs, [auto_scheduler.MeasureResult([1e-3], 0, "", 1, 1)] * len(gpu))
    fresh = auto_scheduler.dispatcher.FallbackContext()  # it warns once of each miss; other tests have met some
    with fresh, auto_scheduler.ApplyHistoryBest(str(log)), transform.PassContext(opt_level=3):
        relay.build(mod, target="llvm", params=params)
    assert caplog.text.count("Reason: only records for cuda") == 4
    with auto_scheduler.ApplyHistoryBest(str(log), strict=True), transform.PassContext(opt_level=3):
        refuses(lambda: relay.build(mod, target="llvm", params=params), RuntimeError, "only records for cuda")
    steps = json.dumps([["SP", 99, 0, 7, [7], 1]])
    refuses(lambda: _core.State(gpu[0].compute_dag, steps), ValueError, "99")


# ---- what is missing on this machine ----


def test_no_compiler(tasks, mlp, monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent")
    monkeypatch.setenv("NESTSMITH_CACHE_DIR", "")
    words = ("/nonexistent", "apt install gcc", "CC")
    new = testing.mlp.get_workload(3)  # not built before: what is in memory needs no compiler
    refuses(lambda: relay.build(new[0], "llvm", params=new[1]), RuntimeError, *words)
    tuner = auto_scheduler.TaskScheduler(tasks[0], callbacks=[])
    refuses(lambda: tuner.tune(auto_scheduler.TuningOptions(64, verbose=0)), RuntimeError, "llvm", *words)
    refuses(lambda: tasks[0][0].tune(auto_scheduler.TuningOptions(8, verbose=0)), RuntimeError, *words)


def test_no_driver(mlp):
    if ns.cuda(0).exist:
        pytest.skip("there is an NVIDIA driver")
    words = ("cuda(0)", "driver")
    refuses(lambda: ns.nd.array(np.zeros(3, "float32"), ns.cuda(0)), RuntimeError, *words)
    tasks, _ = auto_scheduler.extract_tasks(mlp[0]["main"], mlp[1], "cuda -arch=sm_90")
    tuner = auto_scheduler.TaskScheduler(tasks, callbacks=[])
    if _core.build_available("cuda")[0]:
        lib = relay.build(mlp[0], "cuda -arch=sm_90", params=mlp[1])
        refuses(lambda: lib["default"](ns.cuda(0)), RuntimeError, *words)
        refuses(lambda: tuner.tune(auto_scheduler.TuningOptions(64, verbose=0)), RuntimeError, *words)
    else:
        refuses(lambda: tuner.tune(auto_scheduler.TuningOptions(64, verbose=0)), RuntimeError, "NVRTC")


# ---- the executor ----


def test_inputs_and_outputs(module):
    good = np.zeros((1, 1, 28, 28), "float32")
    refuses(lambda: module.set_input("dta", good), RuntimeError, "'dta'", "did you mean 'data'")
    refuses(lambda: module.set_input("input", good), RuntimeError, "'input'", "there are: 'data'")
    refuses(lambda: module.set_input("data", good[0]), ValueError, "'data'", "(1, 1, 28, 28)", "(1, 28, 28)")
    refuses(lambda: module.set_input("data", good.astype("complex64")), TypeError, "'data'", "complex64")
    refuses(lambda: module.set_input(99, good), IndexError, "99")
    refuses(lambda: module.run(x=good), RuntimeError, "'x'")
    refuses(lambda: module.get_output(3), IndexError, "no output 3")
    refuses(lambda: module.get_output("x"), TypeError, "'x'")
    refuses(lambda: graph_executor.GraphModule(3), TypeError, "lib[")


def test_timing(module):
    refuses(lambda: module.benchmark(ns.cpu(0), repeat=0), ValueError, "repeat is 0")
    refuses(lambda: module.benchmark(ns.cpu(0), number=-1), ValueError, "number is -1")
    refuses(lambda: module.benchmark(ns.cuda(0)), ValueError, "cpu(0)", "cuda(0)")


def test_contexts():
    refuses(lambda: transform.PassContext(opt_level="x"), TypeError, "opt_level is 'x'")
    key = "relay.backend.use_auto_scheduler"
    refuses(lambda: transform.PassContext(config={key[:-1]: True}), ValueError, "did you mean", key)
    refuses(lambda: transform.PassContext(config={key: "maybe"}), ValueError, "'maybe'", "True or False")


def test_files_and_arrays(tmp_path):
    refuses(lambda: ns.runtime.load_module(tmp_path), ValueError, os.fspath(tmp_path), "is a directory")
    missing = os.fspath(tmp_path / "missing.so")
    refuses(lambda: ns.runtime.load_module(missing), ValueError, "missing.so", "no such file")
    refuses(lambda: ns.nd.array("x"), ValueError, "float32")
    refuses(lambda: ns.nd.array(np.zeros(3)).copyto(ns.nd.array(np.zeros(4))), ValueError, "(3,)", "(4,)")


def test_names_of_exported_files(mlp, module, tmp_path):
    lib = relay.build(mlp[0], "llvm", params=mlp[1])
    refuses(lambda: lib.export_library(str(tmp_path)), IsADirectoryError, str(tmp_path), "net.so")
    refuses(lambda: lib.export_library(tmp_path / "no" / "net.so"), FileNotFoundError, "no directory", "net.so")
    with pytest.warns(UserWarning, match="net.zip' becomes a shared library, whatever its name says: call it .so") as told:
        lib.export_library(tmp_path / "net.zip")
    assert told[0].filename == __file__, "the warning points at the user's line"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lib.export_library(tmp_path / "libnet-v1.2.so.3.4")
        lib.export_library(tmp_path / "net")
    for name in ("net.zip", "net"):
        assert ns.runtime.load_module(tmp_path / name)["default"](ns.cpu(0)) is not None


def test_pickling_what_was_compiled(mlp, module):
    """The factory is bytes and comes back whole; what lies on a device says what to pickle instead."""
    lib = relay.build(mlp[0], "llvm", params=mlp[1])
    again = graph_executor.GraphModule(pickle.loads(pickle.dumps(lib))["default"](ns.cpu(0)))
    here = graph_executor.GraphModule(lib["default"](ns.cpu(0)))
    data = np.random.default_rng(0).normal(size=(1, 1, 28, 28)).astype("float32")
    for m in (here, again):
        m.run(data=data)
    assert (here.get_output(0).numpy() == again.get_output(0).numpy()).all()
    refuses(lambda: pickle.dumps(here), TypeError, "cannot be pickled", "relay.build")


def test_options_and_candidates_show_what_they_are(tasks, tmp_path):
    runner = auto_scheduler.LocalRunner(repeat=3, device=[0, 1])
    log = auto_scheduler.RecordToFile(tmp_path / "log.json")
    options = auto_scheduler.TuningOptions(64, verbose=0, runner=runner, measure_callbacks=[log])
    for text in ("TuningOptions(num_measure_trials=64", "verbose=0", "LocalBuilder(timeout=15", "repeat=3", "device=[0, 1]",
                 f"measure_callbacks=[RecordToFile('{tmp_path}/log.json')]"):
        assert text in repr(options)
    names = {k: getattr(auto_scheduler, k) for k in ("LocalRunner", "LocalBuilder")}
    assert repr(eval(repr(runner), names)) == repr(runner) != repr(auto_scheduler.LocalRunner())
    state = tasks[0][0].compute_dag.get_init_state()
    assert repr(auto_scheduler.MeasureInput(tasks[0][0], state)) == f"MeasureInput({tasks[0][0]!r}, 0 steps)"


@pytest.mark.parametrize("name", sorted(_absent.INSTEAD))
def test_parts_of_tvm_that_are_not_there(name):
    """Attributes and imports say so, and what there is instead, without a file that an installed package does not have;
    ``hasattr`` says no. Once a part is there, its row goes."""
    package, _, part = name.rpartition(".")
    said = f"^{re.escape(name)} is not there yet: (?!.*docs/)"
    where = importlib.import_module(package)
    assert not hasattr(where, part) and part not in dir(where)
    for statement in (f"import {name}", f"from {package} import {part}", f"from {name}.deeper import x"):
        with pytest.raises(ModuleNotFoundError, match=said):
            exec(statement, {})
    if package in ("nestsmith", "nestsmith.relay", "nestsmith.auto_scheduler"):
        with pytest.raises(AttributeError, match=said):
            getattr(where, part)


def test_names_that_nobody_knows():
    with pytest.raises(AttributeError, match="module 'nestsmith' has no attribute 'atuo_scheduler'"):
        ns.atuo_scheduler  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match="No module named 'nestsmith.atuo_scheduler'"):
        importlib.import_module("nestsmith.atuo_scheduler")


def test_submodules_are_listed_and_loaded():
    """In a fresh process, where nothing has been imported: completion shows them, and asking for one imports it."""
    code = "import nestsmith as ns; print(*dir(ns)); [getattr(ns, n) for n in dir(ns)]; print(ns.relay.build, *dir(ns.relay))"
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    listed, inside = (set(line.split()) for line in r.stdout.splitlines())
    folder = pathlib.Path(ns.__file__).parent
    there = {p.stem for p in folder.glob("[a-z]*.py")} | {p.parent.name for p in folder.glob("*/__init__.py")}
    assert there | {"lower", "IRModule", "progress", "TVMError", "__version__"} <= listed
    assert {"build", "optimize", "testing", "nn"} <= inside


@auto_scheduler.register_workload
def column(n):
    return [A, te.compute((n,), lambda i: A[i, 0])]


@pytest.mark.parametrize("call", [
    lambda: ns.build(te.create_schedule((C := te.compute((4,), lambda i: A[i, 0])).op), [A, C], "cuda -arch=sm_90"),
    lambda: te.create_schedule(C := te.compute((4,), lambda i: A[i, 0]).op)[C].split(C.axis[0], factor=0),
    lambda: relay.build(ns.IRModule.from_expr(conv(data_layout="NHCW")), "llvm"),
    lambda: auto_scheduler.measure_record.load_record_from_string("{"),
    lambda: auto_scheduler.RecordReader(__file__).read_lines(),
    lambda: ns.runtime.load_module(ns._core.__file__),
    lambda: auto_scheduler.SketchPolicy(auto_scheduler.SearchTask(func=column, args=(4,), target="llvm"), params={"eps_greedy": 7}),
    lambda: ns.nd.array(np.zeros(3, "float32"), ns.device("cuda", 77)),
    lambda: relay.build(ns.IRModule.from_expr(relay.Function([x := relay.var("x", shape=(relay.Any(),))], relay.nn.relu(x))), "llvm"),
])  # fmt: skip
def test_scripts_may_catch_tvm_errors(call):
    """Where TVM raises a TVMError, ours is one too, besides being the ValueError or RuntimeError that it says."""
    with pytest.raises(ns.TVMError) as caught:
        call()
    assert isinstance(caught.value, RuntimeError) and caught.type.__module__.startswith("nestsmith.")


def test_the_family_of_errors():
    """The names and bases that `except` clauses of scripts use."""
    error = ns.error
    assert error.TVMError is ns.TVMError is _core.TVMError and issubclass(error.TVMError, RuntimeError)
    assert issubclass(error.TVMValueError, (error.TVMError,)) and issubclass(error.TVMValueError, ValueError)
    assert issubclass(error.OpNotImplemented, NotImplementedError) and issubclass(error.OpAttributeInvalid, AttributeError)
    assert issubclass(error.RPCSessionTimeoutError, TimeoutError) and issubclass(relay.lowering.NotLowerable, error.OpNotImplemented)
    for name in error.__all__:
        again = pickle.loads(pickle.dumps(getattr(error, name)("text")))
        assert type(again) is getattr(error, name) and again.args == ("text",) and isinstance(again, error.TVMError)


A = te.placeholder((8, 8), name="A")


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: te.compute((8,), lambda i: A[i] + 1), TypeError, ("'A'", "2 dimension(s)", "1 indices")),
        (lambda: te.compute((8,), lambda i: 2 * A[i]), TypeError, ("'A'", "1 indices")),
        (lambda: te.compute((8,), lambda i: None, name="C"), TypeError, ("'C'", "returned None")),
        (lambda: te.compute((8,), lambda i: "A[i]", name="C"), TypeError, ("'C'", "returned the text 'A[i]'")),
        (lambda: te.compute((8,), lambda i: (A[i, 0], "x"), name="C"), TypeError, ("'C'", "returned the text 'x'")),
        (lambda: te.compute((8,), lambda i: te.if_then_else(i > 1, "x", "y")), TypeError, ("returned the text",)),
        (lambda: te.compute((8,), lambda i: te.sum(A[i, 0], axis=i)), TypeError, ("te.sum", "axis is i", "reduce_axis")),
        (lambda: te.compute((8,), lambda i: te.max(A[i, 0])), TypeError, ("te.max", "missing", "reduce_axis")),
        (lambda: te.placeholder((3.5,)), ValueError, ("3.5", "whole number")),
        (lambda: auto_scheduler.make_workload_key("x", 8), ValueError, ("'x'", "not registered")),
    ],
)
def test_expressions_of_newcomers(call, error, words):
    refuses(call, error, *words)


def test_options_that_are_none(tasks):
    one = tasks[0][0]
    refuses(lambda: one.tune(None), TypeError, "tuning_options is None", "TuningOptions")
    refuses(lambda: auto_scheduler.TaskScheduler([one]).tune({"trials": 3}), TypeError, "'trials': 3", "TuningOptions")
    auto_scheduler.register_workload("newcomer_plus", lambda n: [A], override=True)
    refuses(lambda: auto_scheduler.SearchTask("newcomer_plus", 8, target="llvm"), TypeError, "args is 8", "(8,)")


def test_operators_that_have_no_value_of_the_type():
    """They computed something else: a slope of 0.1 became 0, ``^`` of integers is no truth value."""
    a, b = te.placeholder((4,), "int32", name="a"), te.placeholder((4,), "bool", name="b")
    for leaky in (ns.topi.leaky_relu, ns.topi.nn.leaky_relu):
        refuses(lambda f=leaky: f(a, 0.1), ValueError, "0.1", "int32", "cast")
    refuses(lambda: ns.topi.logical_xor(a, a), TypeError, "int32", "bitwise_xor")
    for shift in (ns.topi.left_shift, ns.topi.right_shift):
        refuses(lambda f=shift: f(b, b), TypeError, "bool", "astype")
    x = relay.var("x", shape=(4,), dtype="int32")
    refuses(lambda: relay.nn.leaky_relu(x, 0.1).checked_type, ValueError, "int32", "cast")


def test_arguments_of_a_schedule():
    """What nothing reads may be an argument; twice the same, or what is computed elsewhere, may not."""
    a, unread = te.placeholder((4,), name="a"), te.placeholder((3,), name="unread")
    b, other = (te.compute((4,), lambda i: a[i] + 1, name=n) for n in ("b", "other"))
    s = te.create_schedule(b.op)
    arrays = [ns.nd.array(np.ones(n, "float32")) for n in (4, 3, 4)]
    ns.build(s, [a, unread, b], "llvm")(*arrays)
    assert (arrays[2].numpy() == 2).all()
    refuses(lambda: ns.build(s, [a, a, b], "llvm"), ValueError, "arguments 0 and 1", "same tensor, a")
    refuses(lambda: ns.build(s, [a, b, other], "llvm"), ValueError, "argument 2", "other", "not computed")
