"""Direct and Winograd's forms of a convolution as variants of one task: extracted, tuned and chosen by what was measured."""

import json
import pickle

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import auto_scheduler, relay
from nestsmith.auto_scheduler import ApplyHistoryBest, TaskScheduler, extract_tasks
from nestsmith.contrib import graph_executor
from nestsmith.relay import nn, transform
from nestsmith.relay.module import IRModule

RNG = np.random.default_rng(3)


def layers(size=28, ci=16, co=32, times=1, constant=True):
    """(module, parameters) of convolutions with bias and ReLU."""
    x = y = relay.var("x", shape=(1, size, size, ci))
    params, free = {}, [x]
    for k in range(times):
        w, b = relay.var(f"w{k}", shape=(3, 3, ci, co)), relay.var(f"b{k}", shape=(co,))
        y = nn.conv2d(y, w, padding=1, channels=co, kernel_size=3, data_layout="NHWC", kernel_layout="HWIO")
        y, ci, free = nn.relu(nn.bias_add(y, b, axis=3)), co, [*free, w, b]
        params |= {f"w{k}": RNG.standard_normal((3, 3, w.type_annotation.shape[2], co)).astype("float32")} if constant else {}
        params |= {f"b{k}": RNG.standard_normal(co).astype("float32")}
    return IRModule.from_expr(relay.Function(free, y)), params


def context(mode="measured"):
    return transform.PassContext(opt_level=3, config={"relay.winograd": mode, "relay.backend.use_auto_scheduler": True})


def tasks_of(mode, target, **shape):
    with context(mode):
        return extract_tasks(*layers(**shape), target)[0]


NEAR = {"size": 56, "ci": 64, "co": 64}  # where closed forms of a GPU see two forms side by side


@pytest.mark.parametrize(("target", "shape", "others"), [
    ("cuda -arch=sm_90", NEAR, 1),
    ("cuda -arch=sm_90", {"size": 56, "ci": 128, "co": 128}, 0),
    ("cuda -arch=sm_90 -model=x", {"size": 7, "ci": 512, "co": 512}, 1),
    ("llvm -mcpu=znver3", {"size": 7, "ci": 128, "co": 128}, 2),
])  # fmt: skip
def test_variants_are_what_the_other_modes_extract(target, shape, others):
    (task,) = tasks_of("measured", target, **shape)
    (fastest,) = tasks_of("fastest", target, **shape)
    assert task.workload_key == fastest.workload_key and task.desc == fastest.desc and not fastest.variants
    assert len(task.variants) == others
    keys = [t.workload_key for t in (task, *task.variants)]
    assert len(set(keys)) == len(keys) and all(t.constant_inputs == task.constant_inputs for t in task.variants)
    (direct,) = tasks_of("never", target, **shape)
    assert others == 0 or direct.workload_key in keys
    assert len({tuple(map(int, t.compute_dag.tensors[-1].shape)) for t in (task, *task.variants)}) == 1


@pytest.mark.parametrize("mode", ["float16", "tf32"])
def test_tensor_cores_have_no_rivals(mode):
    config = {"relay.winograd": "measured", "nestsmith.allow_tf32": mode == "tf32"}
    with transform.PassContext(opt_level=3, config=config):
        mod, params = layers(**NEAR)
        if mode == "float16":
            mod = transform.Sequential([transform.InferType(), transform.ToMixedPrecision(mode)])(mod)
        tasks, _ = extract_tasks(mod, params, "cuda -arch=sm_90")
    assert tasks and not any(t.variants or "winograd" in t.desc for t in tasks)


def test_weights_that_are_inputs_keep_the_closed_form():
    with context():
        mod, params = layers(56, 128, 128, constant=False)
        tasks, _ = extract_tasks(mod, params, "cuda -arch=sm_90")
    assert not any(t.variants for t in tasks) and any("winograd_without" in t.desc for t in tasks)


FEW = {"evolutionary_search_population": 64, "sample_init_min_population": 16}  # candidates that the search looks at


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """(module, parameters, task, log) of a layer of which both forms are measured on this CPU."""
    log = str(tmp_path_factory.mktemp("forms") / "log.json")
    shape = {"size": 14, "ci": 32, "co": 32, "times": 2}
    mod, params = layers(**shape)
    with context():
        tasks, weights = extract_tasks(mod, params, "llvm")
    assert len(tasks) == 1 and weights == [2] and tasks[0].variants
    tuner = TaskScheduler(tasks, weights, callbacks=[])
    runner = auto_scheduler.LocalRunner(repeat=1, min_repeat_ms=5)
    tuner.tune(auto_scheduler.TuningOptions(12, num_measures_per_round=4, runner=runner,
                                            measure_callbacks=[auto_scheduler.RecordToFile(log)], verbose=0),
               search_policy_params=FEW)  # fmt: skip
    assert tuner.layers == 1 and len(tuner.tasks) == 1 + len(tasks[0].variants) and all(tuner.task_trials)
    assert sum(tuner.task_trials) == 12 and tuner.task_trials[0] >= 4
    assert tuner.cur_score == 2 * min(tuner.best_costs) == 2 * tuner.layer_costs[0]
    return mod, params, tasks[0], log


def built(mod, params, log):
    with ApplyHistoryBest(log), context():
        return relay.build(mod, target="llvm", params=params)


def test_the_form_that_was_measured_to_be_faster_is_built(tuned, tmp_path):
    """Whichever it is: the log, and the log with the times of one form divided by a thousand."""
    mod, params, task, log = tuned
    x = RNG.standard_normal((1, 14, 14, 32)).astype("float32")
    outputs, forms = [], {}
    for favourite in (None, task, *task.variants):
        lines = [json.loads(line) for line in open(log)]
        for r in lines:
            if favourite and r["i"][0][0] == favourite.workload_key:
                r["r"][0] = [t / 1000 for t in r["r"][0]]
        path = tmp_path / "log.json"
        path.write_text("".join(json.dumps(r) + "\n" for r in lines))
        valid = [("stage=quick" in r["v"], np.mean(r["r"][0]), r["i"][0][0]) for r in lines if r["r"][1] == 0]
        best = min(min(v for v in valid if v[2] == key)[1:] for key in {v[2] for v in valid})[1]  # a full time goes before a quick one
        lib = built(mod, params, str(path))
        assert {p.key for p in lib.kernels.values() if p.key} == {best}
        assert {p.origin for p in lib.kernels.values() if p.key} == {"tuned"}
        forms[favourite and favourite.workload_key] = best
        run = graph_executor.GraphModule(lib["default"](ns.cpu()))
        run.set_input("x", x)
        run.run()
        outputs.append(run.get_output(0).numpy())
    assert all(key == best for key, best in forms.items() if key)
    for out in outputs[1:]:
        np.testing.assert_allclose(out, outputs[0], rtol=1e-3, atol=1e-2)


def test_records_of_one_form_alone_are_used(tuned, tmp_path):
    mod, params, task, log = tuned
    for form in (task, *task.variants):
        path = tmp_path / "log.json"
        path.write_text("".join(line for line in open(log) if json.loads(line)["i"][0][0] == form.workload_key))
        lib = built(mod, params, str(path))
        assert {p.key for p in lib.kernels.values() if p.key} == {form.workload_key}
    lib = built(mod, params, None)  # nothing is known: as the closed form says
    assert {p.key for p in lib.kernels.values() if p.key} == {task.workload_key}


def test_a_run_goes_on_with_all_forms(tuned):
    mod, params, task, log = tuned
    tuner = TaskScheduler([task], [2], load_log_file=log, callbacks=[])
    runner = auto_scheduler.LocalRunner(repeat=1, min_repeat_ms=5)
    tuner.tune(auto_scheduler.TuningOptions(4, num_measures_per_round=4, runner=runner, verbose=0), search_policy_params=FEW)
    assert tuner.restored == 12 and tuner.ct == 4


@pytest.mark.full
def test_compile_measures_them(tmp_path):
    mod, params = layers(14, 32, 32)
    with transform.PassContext(config={"relay.winograd": "never"}):
        one = ns.compile((mod, params), target="llvm", trials=2, log=tmp_path / "direct.json", verbose=0)
    all_forms = ns.compile((mod, params), target="llvm", trials=12, log=tmp_path / "log.json", verbose=0)
    keys = {json.loads(line)["i"][0][0] for line in open(tmp_path / "log.json")}
    assert len(keys) >= 2 and len({json.loads(line)["i"][0][0] for line in open(tmp_path / "direct.json")}) == 1
    x = RNG.standard_normal((1, 14, 14, 32)).astype("float32")
    np.testing.assert_allclose(np.asarray(all_forms(x)), np.asarray(one(x)), rtol=1e-3, atol=1e-2)


def test_a_record_of_any_form_is_one_of_the_layer(tuned, tmp_path, capfd):
    mod, params, task, log = tuned
    other = task.variants[0]
    path = tmp_path / "log.json"
    path.write_text("".join(line for line in open(log) if json.loads(line)["i"][0][0] == other.workload_key))
    tuner = TaskScheduler([task], load_log_file=str(path), callbacks=[])
    tuner.tune(auto_scheduler.TuningOptions(2, num_measures_per_round=2, runner=auto_scheduler.LocalRunner(repeat=1, min_repeat_ms=5), verbose=1))
    assert "1 of 1 tasks have some" in capfd.readouterr().out and len(tuner.layer_costs) == 1 < 1e9
    assert task.layer_keys == task.keys + tuple(k for v in task.variants for k in v.keys)
    # a first look of a quarter is a round: it is not asked for again
    few = tmp_path / "few.json"
    lines = [line for line in open(log) if json.loads(line)["i"][0][0] == task.workload_key][:4]
    few.write_text("".join(lines) + path.read_text().splitlines(True)[0])
    again = TaskScheduler([task], load_log_file=str(few), callbacks=[])
    again._begin(auto_scheduler.TuningOptions(64, num_measures_per_round=4, verbose=0), None)
    assert again.task_cts[:2] == [len(lines) // 4, 1]


def test_what_is_given_by_hand_goes_before_records(tuned):
    mod, params, task, log = tuned
    for form in (task, *task.variants):
        context_of_hand = ApplyHistoryBest(log)
        context_of_hand.update(task.target, form.workload_key, form.compute_dag.init_state)
        with context_of_hand, context():
            lib = relay.build(mod, target="llvm", params=params)
        assert {p.key for p in lib.kernels.values() if p.key} == {form.workload_key}


def test_policies_of_the_user_are_for_the_tasks_that_were_given(tuned):
    task = tuned[2]
    tuner = TaskScheduler([task], callbacks=[])
    policies = [auto_scheduler.SketchPolicy(task, "random", verbose=0)]
    tuner.tune(auto_scheduler.TuningOptions(3, num_measures_per_round=3, verbose=0), search_policy=policies)
    assert tuner.task_trials == [3] + [0] * len(task.variants)
    again = pickle.loads(pickle.dumps(task))
    assert again.layer_keys == task.layer_keys and [v.constant_inputs for v in again.variants] == [v.constant_inputs for v in task.variants]
