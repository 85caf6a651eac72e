"""ResNet-18 at full size on the GPU: logits against PyTorch's with the same parameters, whatever chose the schedules.

The logits are compared, not the probabilities: softmax would hide most of an error. Skipped without a GPU.
"""

import gzip
import pathlib

import numpy as np
import pytest
from networks_of_reference import logits, resnet
from relay_reference import evaluate, relative_error

import nestsmith as ns
from nestsmith import auto_scheduler, relay, transform
from nestsmith.contrib import graph_executor

pytestmark = pytest.mark.skipif(not ns.cuda(0).exist, reason="no CUDA device: " + ns.cuda(0).why_not)
PUBLIC_LOG = pathlib.Path(__file__).parent.parent / "data" / "tvm-resnet-18-NHWC-B1-cuda.json.gz"


def difference(name, context):
    mod, params = resnet(name)
    mod = logits(mod)
    with context, transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
        lib = relay.build(mod, target="cuda", params=params)
    shape = (1, 224, 224, 3) if name.endswith("NHWC") else (1, 3, 224, 224)
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    module = graph_executor.GraphModule(lib["default"](ns.cuda(0)))
    module.run(data=x)
    want = evaluate(mod["main"], {"data": x, **{k: v.numpy() for k, v in params.items()}})
    got = module.get_output(0).numpy()
    assert got.shape == want.shape == (1, 1000) and np.ptp(want) > 1
    return relative_error(got, want)


@pytest.mark.parametrize("name", ["resnet-18-NHWC", "resnet-18-NCHW", "resnet-50-NHWC"])
def test_default_schedules(name):
    assert difference(name, auto_scheduler.dispatcher.FallbackContext(verbose=0)) < 1e-4


def test_public_log(tmp_path):
    log = tmp_path / "log.json"
    log.write_bytes(gzip.decompress(PUBLIC_LOG.read_bytes()))
    assert difference("resnet-18-NHWC", auto_scheduler.ApplyHistoryBest(str(log))) < 1e-4


def test_freshly_tuned(tmp_path):
    """Four trials per task, measured on this GPU."""
    mod, params = resnet("resnet-18-NHWC")
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, ns.target.Target("cuda"))
    log = str(tmp_path / "log.json")
    context = auto_scheduler.LocalRPCMeasureContext(repeat=1, min_repeat_ms=100, timeout=10)
    auto_scheduler.TaskScheduler(tasks, weights, callbacks=[]).tune(
        auto_scheduler.TuningOptions(
            num_measure_trials=4 * len(tasks),
            num_measures_per_round=4,
            runner=context.runner,
            verbose=0,
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
        )
    )
    assert difference("resnet-18-NHWC", auto_scheduler.ApplyHistoryBest(log)) < 1e-4
