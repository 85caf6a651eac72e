"""A network on an OpenCL device (PoCL in tests) against the same network on the CPU."""

import numpy as np
import pytest
from networks import logits
from relay_reference import relative_error

import nestsmith as ns
from nestsmith import relay, transform
from nestsmith.contrib import graph_executor


@pytest.mark.full
def test_resnet18_on_opencl():
    dev = ns.opencl(0)
    if not dev.exist:
        pytest.skip(dev.why_not)
    mod, params = relay.testing.resnet.get_workload(
        num_layers=18, layout="NHWC", image_shape=(32, 32, 3), num_classes=10
    )
    mod, out = logits(mod), []
    x = np.random.default_rng(0).uniform(size=(1, 32, 32, 3)).astype("float32")
    for target, device in (("llvm", ns.cpu(0)), ("opencl", dev)):
        with transform.PassContext(opt_level=3):
            lib = relay.build(mod, target=target, params=params)
        m = graph_executor.GraphModule(lib["default"](device))
        m.set_input("data", x)
        m.run()
        out.append(m.get_output(0).numpy())
    assert np.abs(out[0]).max() > 0 and relative_error(out[1], out[0]) < 1e-4
