"""The tasks of a reference network, cut out by our own extraction, under the keys of the reference."""

import functools

import nestsmith as ns
from nestsmith import _core, auto_scheduler, relay
from nestsmith.relay import testing

TARGET = {"cuda": "cuda -arch=sm_90 -max_shared_memory_per_block=49152 -max_threads_per_block=1024", "llvm": "llvm"}
ENGINE = {
    "cuda": _core.Target("cuda", sm=90),
    "llvm": _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0)),
}


def workload(name):
    """(module, parameters) of "resnet-18-NHWC" and the like, batch 1."""
    net, layout = name.rsplit("-", 1)
    image = (224, 224, 3) if layout == "NHWC" else (3, 224, 224)
    if net.startswith("resnet-"):
        return testing.resnet.get_workload(num_layers=int(net[7:]), layout=layout, image_shape=image)
    if net == "mobilenet":
        return testing.mobilenet.get_workload(layout=layout, image_shape=image)
    if net == "squeezenet_v1.1":
        return testing.squeezenet.get_workload(version="1.1")
    if net == "dqn":
        return testing.dqn.get_workload(1, image_shape=(84, 84, 4), layout=layout)
    return getattr(testing, net).get_workload(1)


def resnet(name):
    """(module, parameters) of "resnet-18-NHWC" and the like with activations that keep their size through the depth."""
    net, layout = name.rsplit("-", 1)
    image = (224, 224, 3) if layout == "NHWC" else (3, 224, 224)
    function = testing.resnet.get_net(1, 1000, int(net[7:]), image_shape=image, layout=layout)
    return testing.create_workload(function, testing.HeNormal("HWIO" if layout == "NHWC" else "OIHW"))


def logits(mod):
    """The network without its last operator, softmax, which hides most of an error."""
    main = mod["main"]
    assert main.body.op.name == "nn.softmax"
    return ns.IRModule.from_expr(relay.Function(main.params, main.body.args[0]))


@functools.cache
def extracted(name):
    """{key with the names of current releases: (DAG with these names, task, weight)} of a network and target pair."""
    network, kind = name.rsplit("-", 1)
    mod, params = workload(network)
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, TARGET[kind])
    return {t.alt_keys[0]: (auto_scheduler.ComputeDAG(t.alt_keys[0]), t, w) for t, w in zip(tasks, weights)}


def sketches(dag, kind):
    """All sketches of a DAG in the compatible mode, in order."""
    return _core.Policy(dag, ENGINE[kind], {"search_mode": "compatible"}, 1, 1).sketches()
