"""What float32 is computed in belongs to the task: it decides what is searched, how results are compared, and where records count."""

import json
import logging

import numpy as np
import pytest

from nestsmith import _core, auto_scheduler, relay, runtime, transform
from nestsmith.auto_scheduler import (
    MeasureInput,
    MeasureResult,
    measure_record,
    relay_integration,
    search_policy,
    workload_keys,
)
from nestsmith.compiled import build, report, schedules
from nestsmith.compiled.limits import of_gpu
from nestsmith.compiled.report import Layer
from nestsmith.numerics import PRECISIONS, tolerance
from nestsmith.relay import nn
from nestsmith.runtime.device import Device
from nestsmith.states import core_state
from nestsmith.target import Target

TARGET = "cuda -arch=sm_90"


def network():
    """A first layer of 3 channels, 3x3 and 1x1 with bias, residual and relu, a stride, pooling and a dense layer."""
    rng, params, count = np.random.default_rng(0), {}, iter(range(100))

    def weight(*shape):
        params[name := f"w{next(count)}"] = rng.standard_normal(shape).astype("float32")
        return relay.var(name, shape=shape)

    def conv(x, co, ci, k, stride=1):
        y = nn.conv2d(x, weight(co, ci, k, k), strides=stride, padding=k // 2, channels=co, kernel_size=k)
        return nn.bias_add(y, weight(co))

    x = relay.var("x", shape=(1, 3, 18, 18))
    y = nn.relu(conv(x, 16, 3, 7, 2))
    z = nn.relu(relay.add(conv(nn.relu(conv(y, 16, 16, 3)), 16, 16, 3), y))
    y = nn.relu(relay.add(conv(z, 32, 16, 3, 2), conv(z, 32, 16, 1, 2)))
    y = nn.bias_add(nn.dense(nn.batch_flatten(nn.global_avg_pool2d(y)), weight(64, 32)), weight(64))
    variables = [e for e in relay.expr.post_order(y) if isinstance(e, relay.expr.Var)]
    return relay.module.IRModule.from_expr(relay.Function(variables, y)), params


def tasks_in(precision):
    mod, params = network()
    mod, target = build._in_precision(mod, params, precision), Target(TARGET)
    layout = build.layout_for(mod, params, target, "auto", precision)
    assert layout == "NHWC"
    return build.tasks_of(mod, params, target, layout, precision)[0]


def test_who_reads_an_image_as_it_lies():
    """Where products are by lanes, too, the first convolution takes in the change of its layout; tensor cores want a fourth channel."""
    for precision, first in (("float32", True), ("float32x3", True), ("tf32", False), ("float16", False)):
        assert any("layout_transform_nn_conv2d" in task.desc for task in tasks_in(precision)) == first
    x, w = relay.var("x", shape=(1, 64, 18, 18)), relay.var("w", shape=(16, 64, 3, 3))
    y = nn.conv2d(x, w, padding=1, channels=16, kernel_size=3)  # no image: tensor cores copy its channels well
    mod = relay.module.IRModule.from_expr(relay.Function([x, w], y))
    params = {"w": np.ones((16, 64, 3, 3), "float32")}
    (task,) = build.tasks_of(mod, params, Target(TARGET), "NHWC", "float32x3")[0]
    assert [tuple(map(int, t.shape)) for t in task.compute_dag.tensors][1] == (16, 3, 3, 64)  # as they take weights


def policy(task, **more):
    return auto_scheduler.SketchPolicy(task, "random", seed=1, verbose=0, **more)


def terms(state):
    """Of each product that is made by one step: instructions of tensor cores for one, 0: none, lanes multiply."""
    return [(*step[2], 1)[8] for step in state.transform_steps if step[0] == "MM"]  # 1 where it is not written


def on_tensor_cores(state):
    return any(terms(state))


def products(tasks):
    return [t for t in tasks if "conv2d" in t.desc or "dense" in t.desc]


@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_every_product_of_a_network_may_be_on_tensor_cores(precision):
    tasks = products(tasks_in(precision))
    assert len(tasks) >= 6
    assert all(t.math == PRECISIONS[precision] for t in tasks)
    sketches = [[on_tensor_cores(s) for s in policy(t).generate_sketches()].count(True) for t in tasks]
    assert sketches == [2] * len(tasks)  # by instructions of warps and of warpgroups


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_results_keep_their_type_in_tuples_of_tuples(precision):
    x = relay.var("x", shape=(2, 8))
    y = nn.dense(x, relay.const(np.ones((4, 8), "float32")))
    mod = relay.module.IRModule.from_expr(relay.Function([x], relay.Tuple([y, relay.Tuple([relay.argmax(y, 1), relay.Tuple([x])])])))
    before, after = (m["main"].body.checked_type for m in map(relay.transform.InferType(), (mod, build._in_precision(mod, {}, precision))))
    assert str(after) == str(before)


def test_float32_is_strict():
    """No tensor cores; lanes by themselves multiply what is a product of matrices, a single row is none."""
    for t in tasks_in("float32"):
        sketches = policy(t).generate_sketches()
        assert t.math == "strict" and not any(map(on_tensor_cores, sketches))
        changes = "layout_transform" in t.desc  # of the image: in the kernel, or one before it
        assert [terms(s) for s in sketches].count([0]) == ("conv2d" in t.desc) + changes


def test_tolerances_follow_from_the_precision():
    assert tolerance("float32") < tolerance("tf32") < tolerance("float16") < tolerance("bfloat16")


def test_float16_is_added_up_in_float16_where_the_context_allows_it():
    with transform.PassContext(config={"nestsmith.allow_fp16_accumulation": True}):
        assert {t.math for t in tasks_in("float16")} == {"fp16_accumulation"}
        assert {t.math for t in tasks_in("tf32")} == {"tf32+fp16_accumulation"}
    assert {t.math for t in tasks_in("float16")} == {"strict"}


# ---- records ----
def both(mode):
    """(task, task that may use a mode) of one computation, and a state of each: the first's of loops, the second's on tensor cores."""
    loose = next(t for t in tasks_in(mode) if "add_nn_relu" in t.desc and "conv2d_1" not in t.desc)
    tasks = [auto_scheduler.SearchTask(workload_key=loose.workload_key, target=TARGET), loose]
    assert [t.math for t in tasks] == ["strict", mode]
    drawn = [policy(t).sample_initial_population() for t in tasks]
    return tasks, [next(s for s in drawn[0] if not terms(s)), next(s for s in drawn[1] if on_tensor_cores(s))]


@pytest.fixture(scope="module")
def pair():
    return both("tf32")


def record(task, state, seconds):
    return measure_record.dump_record_to_string(MeasureInput(task, state), MeasureResult([seconds], 0, "", 0.1, 1))


def records(pair, path):
    """The record on tensor cores is the faster one."""
    path.write_text("".join(record(t, s, 1e-5 / (k + 1)) for k, (t, s) in enumerate(zip(*pair))))
    return str(path)


@pytest.fixture
def log(pair, tmp_path):
    return records(pair, tmp_path / "log.json")


ALLOWED = {"nestsmith.allow_tf32": True}


@pytest.mark.parametrize("mode", ["tf32", "float32x3"])
def test_records_say_the_mode(mode, tmp_path):
    pair = both(mode)
    log = records(pair, tmp_path / "log.json")
    lines = open(log).read().splitlines()
    assert [f"math={mode}" in x for x in lines] == [False, True]
    assert [measure_record.load_record_from_string(x)[0].task.math for x in lines] == ["strict", mode]
    assert measure_record.text_of(_core.record_parse(lines[1])) == lines[1] + "\n"
    assert [schedules._recorded_trials([t], t.target, log) for t in pair[0]] == [[1], [1]]
    best = log + ".best"
    measure_record.distill_record_file(log, best)
    assert len(open(best).read().splitlines()) == 2


def test_history_keeps_to_the_mode(pair, log):
    (strict, loose), states = pair
    for context in (auto_scheduler.ApplyHistoryBest(log), auto_scheduler.ApplyHistoryBest(list(auto_scheduler.load_records(log)))):

        def asked(context=context):
            found = context.query(strict.target, strict.workload_key, True, strict.compute_dag, "f")
            return any(step[0] == "MM" for step in found.transform_steps), context.origin(strict.target, strict.workload_key)

        assert asked() == (False, "log record")
        with transform.PassContext(config=ALLOWED):
            assert asked() == (True, "log record (tf32)")
    for task, mode in ((strict, False), (loose, True)):
        steps = core_state(task.apply_best(log)[0]).steps_text()
        assert ("MM" in steps) == mode
        inp, _ = auto_scheduler.load_best_record(log, task.workload_key, task.target, math=task.math)
        assert on_tensor_cores(inp.state) == mode


def test_a_strict_search_does_not_start_from_tf32(pair, log):
    for task, n in zip(pair[0], (1, 2)):
        taken = []
        p = policy(task)
        p.preload = lambda inp, res, taken=taken: taken.append(inp)
        search_policy.PreloadMeasuredStates(log)(p)
        assert len(taken) == n


def test_only_records_of_the_other_mode(pair, tmp_path):
    (strict, loose), states = pair
    path = tmp_path / "log.json"
    path.write_text(record(loose, states[1], 1e-5))
    with pytest.raises(RuntimeError, match="only records for sm_90/tf32"):
        strict.apply_best(str(path))


def test_why_there_is_no_record_goes_by_the_mode_of_the_task(pair, tmp_path, capsys):
    (strict, loose), states = pair
    path = tmp_path / "log.json"
    failed = MeasureResult([1e10], 4, "it failed", 1.0, 0)
    path.write_text(measure_record.dump_record_to_string(MeasureInput(loose, states[1]), failed))
    with pytest.raises(RuntimeError, match=r"only failed trials \(1\)"):
        loose.apply_best(str(path))
    path.write_text(record(loose, states[1], 1e-5))
    with transform.PassContext(config=ALLOWED):
        search_policy.PreloadMeasuredStates(str(path))(auto_scheduler.SketchPolicy(strict, "random", seed=1))
        assert "only records for sm_90/tf32" in capsys.readouterr().out
        with pytest.raises(RuntimeError, match="only records for sm_90/tf32"):
            strict.apply_best(str(path))


def test_records_of_a_mode_that_is_not_allowed_hide_no_compatible_ones(pair, log):
    strict = pair[0][0]
    lines = open(log).read().splitlines(keepends=True)
    name, *sizes = workload_keys.decode_workload_key(strict.workload_key)
    smaller = json.dumps([name, *(1 if isinstance(n, int) else n for n in sizes[0])])
    fields = json.loads(lines[0])
    fields["i"][0][0] = smaller
    with open(log, "w") as f:
        f.write(json.dumps(fields) + "\n" + lines[1])
    context = auto_scheduler.ApplyHistoryBest(log, include_compatible=True)

    def asked():
        found = context.query(strict.target, strict.workload_key, True, strict.compute_dag, "f")
        return any(step[0] == "MM" for step in found.transform_steps), context.origin(strict.target, strict.workload_key)

    assert asked() == (False, "similar task (other sizes)")
    with transform.PassContext(config=ALLOWED):
        assert asked() == (True, "log record (tf32)")


def test_records_of_a_mode_that_is_not_allowed_are_none_of_a_network(pair, log):
    """nestsmith.compile looks into all logs of the user, also into those of networks that it compiled in another precision."""
    strict = pair[0][0]
    lines = open(log).read().splitlines(keepends=True)
    with open(log, "w") as f:
        f.write(lines[1])
    assert schedules.BestKnown([log], [strict], strict.target, guess=False).origin(strict.target, strict.workload_key) == ""
    with transform.PassContext(config=ALLOWED):
        known = schedules.BestKnown([log], [strict], strict.target, guess=False)
        assert known.origin(strict.target, strict.workload_key) == "log record (tf32)"


def test_a_build_refuses_steps_that_need_what_it_does_not_allow(pair, tmp_path, caplog):
    """A record without the mark, or a schedule given by hand."""
    (strict, loose), states = pair
    path = tmp_path / "log.json"
    path.write_text(record(strict, states[1], 1e-5))
    assert "math=" not in path.read_text()
    variants = [list(strict.compute_dag.tensors)]

    def found():
        return relay_integration._Provider().find(strict.target, variants, "f")[1]

    with auto_scheduler.ApplyHistoryBest(str(path)), caplog.at_level(logging.WARNING):
        assert found() is None and "multiplies float32 on tensor cores, in TF32" in caplog.text
        with transform.PassContext(config=ALLOWED):
            assert on_tensor_cores(found())


def test_a_network_is_built_in_its_mode(tmp_path):
    """Through NVRTC: the kernel of the record is in the library where the precision allows it, and there only."""
    mod, params = network()
    target = Target(TARGET)
    tasks = products(tasks_in("tf32"))
    states = [next(s for s in policy(t).sample_initial_population() if on_tensor_cores(s)) for t in tasks]
    path = tmp_path / "log.json"
    path.write_text("".join(record(t, s, 1e-5) for t, s in zip(tasks, states)))
    for precision, n in (("tf32", len(tasks)), ("float32", 0)):
        with build._context("NHWC", target, precision), auto_scheduler.FallbackContext(verbose=0), auto_scheduler.ApplyHistoryBest(str(path)):
            lib = relay.build(mod, target=target, params=params)
        text = lib.get_lib().get_source("cu")
        there = text.count("mma.sync") + text.count("wgmma.mma_async")
        assert there >= n and (n > 0) == (there > 0)


# ---- reports ----
@pytest.mark.parametrize(("precision", "products"), [("float32", ""), ("float32x3", "float32x3"), ("tf32", "tf32"), ("float16", "float16")])
def test_layers_are_held_against_what_they_may_be_computed_with(precision, products, tmp_path, monkeypatch):
    """And files and reports say so."""
    mod, params = network()
    target = Target(TARGET)
    mod = build._in_precision(mod, params, precision)
    with build._context("NHWC", target, precision), auto_scheduler.FallbackContext(verbose=0):
        lib = relay.build(mod, target=target, params=params)
    lib.export_library(str(tmp_path / "net.tar"))
    graph = json.loads(runtime.load_module(str(tmp_path / "net.tar")).graph_json_str)
    nodes = graph["nodes"]
    convolutions = [n for n in nodes if "conv2d" in n["name"]]
    assert convolutions and all(n["attrs"].get("products", "") == products for n in convolutions)
    assert not any("products" in n["attrs"] for n in nodes if "pool" in n["name"])
    machine, peak = Target(TARGET).engine().machine, Target(TARGET).engine().matrix_peak
    assert peak > 5 * machine["peak"] and Target("cuda -arch=sm_70").engine().matrix_peak == 0
    most = of_gpu(Target(TARGET).engine())
    layers = [Layer({"name": "a", "attrs": {"flops": "1e9", "products": p}}, 1e-3, 0, most) for p in (products, "")]
    monkeypatch.setattr(report, "limits", lambda *_: most)  # there may be no GPU
    head, _, *rows, _ = str(report.Report(graph, [1e-5] * len(nodes), 1e-3, target, Device(2, 0))).splitlines()
    assert ("products" in head) == bool(products) and head.index("schedule") == rows[0].index("default")
    assert [products in row.split() for row in rows if "conv2d" in row] == [bool(products)] * len(convolutions)
    assert layers[0].limit == pytest.approx(1e12 / most[0][products]) and (layers[0].limit < layers[1].limit) == bool(products)
