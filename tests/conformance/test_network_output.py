"""ResNet-18 at full size on the CPU: its output against an evaluator made of PyTorch and NumPy."""


import numpy as np
import pytest
from networks_of_reference import logits, resnet
from relay_reference import evaluate, relative_error

import nestsmith as ns
from nestsmith import auto_scheduler, relay, transform
from nestsmith.contrib import graph_executor
from nestsmith.relay import testing

CPU = ns.cpu(0)


def outputs(mod, params, image, context):
    """(what the compiled network computes, what the evaluator computes)"""
    with context, transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
        lib = relay.build(mod, target="llvm", params=params)
    x = np.random.default_rng(0).uniform(-1, 1, (1, *image)).astype("float32")
    module = graph_executor.GraphModule(lib["default"](CPU))
    module.run(data=x)
    want = evaluate(mod["main"], {"data": x, **{k: v.numpy() for k, v in params.items()}})
    return module.get_output(0).numpy(), want


@pytest.mark.parametrize("layout", ["NHWC", pytest.param("NCHW", marks=pytest.mark.full)])
def test_default_schedules(layout):
    image = (224, 224, 3) if layout == "NHWC" else (3, 224, 224)
    mod, params = resnet(f"resnet-18-{layout}")
    got, want = outputs(logits(mod), params, image, auto_scheduler.dispatcher.FallbackContext(verbose=0))
    assert got.shape == (1, 1000) and relative_error(got, want) < 1e-4


@pytest.mark.full
def test_tuned_schedules(tmp_path):
    """A smaller image, one trial per task: every kernel comes from the log, weights in the layout that was measured."""
    mod, params = testing.resnet.get_workload(num_layers=18, layout="NHWC", image_shape=(64, 64, 3), num_classes=10)
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, "llvm")
    log = str(tmp_path / "log.json")
    tuner = auto_scheduler.TaskScheduler(tasks, weights, callbacks=[])
    options = auto_scheduler.TuningOptions(
        num_measure_trials=len(tasks),
        verbose=0,
        runner=auto_scheduler.LocalRunner(number=1, min_repeat_ms=0),
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )
    tuner.tune(options, search_policy="sketch.random")
    records = [r for _, r in auto_scheduler.load_records(log)]
    assert [r.error_no for r in records] == [0] * len(tasks)
    history = auto_scheduler.ApplyHistoryBest(log, strict=True)
    got, want = outputs(mod, params, (64, 64, 3), history)
    assert set(history.report().values()) <= {"exact", "no record for this workload"}
    assert relative_error(got, want) < 1e-4
