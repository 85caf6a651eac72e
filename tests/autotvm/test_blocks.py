"""Blocks of channels between convolutions: who hands them on, where NCHW comes back, and that results stay the same."""

import numpy as np
import pytest
from template_network import blocked_records, build, output

import nestsmith as ns
from nestsmith import autotvm, relay, transform
from nestsmith.relay import pipeline, testing
from nestsmith.relay.expr import Call, post_order
from nestsmith.relay.infer import infer_type

LLVM = "llvm"
CONV = relay.op.get("nn.conv2d")
SHAPE = (1, 8, 12, 12)


class Net:
    """A network under construction; weights are small whole numbers."""

    def __init__(self):
        self.rng, self.params = np.random.default_rng(0), {}
        self.x = relay.var("data", shape=SHAPE)

    def weight(self, *shape):
        name = f"w{len(self.params)}"
        self.params[name] = self.rng.integers(-1, 2, shape).astype("float32")
        return relay.var(name, shape=shape)

    def conv(self, x, ci, co, kernel=3, **more):
        return relay.nn.conv2d(x, self.weight(co, ci // more.get("groups", 1), kernel, kernel), padding=(kernel // 2,) * 2, **more)

    def module(self, out):
        inputs = [e for e in post_order(out) if isinstance(e, relay.Var)]
        return ns.IRModule.from_expr(relay.Function(inputs, out)), self.params


def tasks_of(mod, params):
    return autotvm.task.extract_from_program(mod, params, LLVM, ops=[CONV])


def names(mod, params, log, **how):
    """Operators of the network as it is built."""
    with autotvm.apply_history_best(log), transform.PassContext(opt_level=3, **how):
        optimized = pipeline.optimize(mod, ns.target.Target(LLVM), params)
    return [e.op_name for e in post_order(optimized["main"].body) if isinstance(e, Call)]


# ---- what goes along: body between two convolutions, transforms that it costs ----
def _norm(n, x):
    one = [n.weight(16) for _ in range(4)]
    n.params["w4"] = np.abs(n.params["w4"]) + 1  # the variance
    return relay.nn.relu(relay.nn.batch_norm(x, *one)[0])


BETWEEN = {
    "nothing": (lambda n, x: x, 0),
    "bias and activation": (lambda n, x: relay.nn.relu(relay.nn.bias_add(x, n.weight(16))), 0),
    "batch norm": (_norm, 0),
    "a number": (lambda n, x: relay.multiply(x, relay.const(2.0)), 0),
    "one number per row and column": (lambda n, x: relay.add(x, n.weight(1, 1, 12, 12)), 0),
    "one number per column": (lambda n, x: relay.add(n.weight(12), x), 0),
    "a constant map": (lambda n, x: relay.add(x, n.weight(*SHAPE[:1], 16, 12, 12)), 0),
    "another branch": (lambda n, x: relay.add(x, n.conv(n.x, 8, 16, 1)), 0),
    "the input": (lambda n, x: relay.add(x, relay.concatenate([n.x, n.x], 1)), 1),
    "itself and its mean": (lambda n, x: relay.multiply(x, relay.sigmoid(relay.nn.global_avg_pool2d(x))), 0),
    "maximum": (lambda n, x: relay.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1)), 0),
    "mean": (lambda n, x: relay.nn.avg_pool2d(x, (2, 2), (2, 2), count_include_pad=True), 0),
    "adaptive mean": (lambda n, x: relay.nn.adaptive_avg_pool2d(x, (6, 6)), 0),
    "concatenation": (lambda n, x: relay.concatenate([x, n.conv(n.x, 8, 8)], 1), 0),
    "depthwise": (lambda n, x: n.conv(x, 16, 16, groups=16), 0),
    "rows the other way round, too": (lambda n, x: relay.add(relay.reverse(x, 2), x), 2),
    "a part": (lambda n, x: relay.concatenate([x, relay.strided_slice(x, [0, 4, 0, 0], [1, 12, 12, 12])], 1), 2),
}


@pytest.mark.some(7)
@pytest.mark.parametrize("what", BETWEEN)
def test_what_lies_between_two_convolutions(what):
    body, transforms = BETWEEN[what]
    n = Net()
    y = body(n, n.conv(n.x, 8, 16))
    channels = infer_type(relay.Function([e for e in post_order(y) if isinstance(e, relay.Var)], y)).body.checked_type.shape[1]
    mod, params = n.module(relay.nn.batch_flatten(n.conv(y, channels, 8)))
    log = blocked_records(tasks_of(mod, params))
    found = names(mod, params, log)
    assert (found.count("layout_transform"), found.count("nn.conv2d")) == (transforms, 0)
    x = np.random.default_rng(1).integers(-2, 3, SHAPE).astype("float32")
    want = output(build(mod, params, LLVM, log, disabled=["AlterOpLayout"]), LLVM, x)
    np.testing.assert_array_equal(output(build(mod, params, LLVM, log), LLVM, x), want)
    assert np.abs(want).max() > 0


def test_other_blocks_are_repacked_while_padding(caplog):
    """A convolution takes the blocks of the one before; only branches that meet need a transform."""
    n = Net()
    a = relay.nn.relu(n.conv(n.x, 8, 16))
    b = relay.add(n.conv(a, 16, 16), a)
    mod, params = n.module(relay.nn.batch_flatten(n.conv(b, 16, 8)))
    tasks = tasks_of(mod, params)
    blocks = {(8, 16): (4, 8), (16, 16): (8, 2), (16, 8): (16, 4)}  # channels -> blocks in and out

    def block(task, knob):
        co, ci = task.args[1][1][:2]
        return blocks[ci, co][knob == "tile_oc"]

    log = blocked_records(tasks, block)
    assert names(mod, params, log).count("layout_transform") == 1  # at the sum
    x = np.random.default_rng(1).integers(-2, 3, SHAPE).astype("float32")
    lib = build(mod, params, LLVM, log)
    assert "template failed" not in caplog.text
    want = output(build(mod, params, LLVM, log, disabled=["AlterOpLayout"]), LLVM, x)
    np.testing.assert_array_equal(output(lib, LLVM, x), want)


@pytest.mark.parametrize("between", [lambda x: relay.reverse(x, 2), lambda x: relay.nn.softmax(x, 1)])
def test_what_needs_nchw_on_its_way_keeps_it(between):
    """No convolution makes blocks only to have them taken apart: its kernel unpacks, as without this."""
    n = Net()
    mod, params = n.module(n.conv(between(n.conv(n.x, 8, 16)), 16, 8))
    found = names(mod, params, blocked_records(tasks_of(mod, params)))
    assert found.count("nn.conv2d") == 2 and "layout_transform" not in found


def test_the_last_convolution_writes_nchw():
    """Nobody behind it wants blocks: the kernel unpacks, and no transform follows."""
    n = Net()
    mod, params = n.module(relay.nn.softmax(relay.nn.relu(n.conv(n.conv(n.x, 8, 16), 16, 8)), 1))
    found = names(mod, params, blocked_records(tasks_of(mod, params)))
    assert found.count("layout_transform") == 0 and found.count("nn.contrib_conv2d_NCHWc") == 2


@pytest.mark.some(2)
@pytest.mark.parametrize("network, convolutions", [("resnet", 21), ("mobilenet", 27), ("vgg", 8), ("squeezenet", 26)])
def test_networks_need_no_transforms(network, convolutions):
    """With equal blocks everywhere: the first convolution takes NCHW, what follows the last pool has one element per channel."""
    module = getattr(testing, network)
    mod, params = module.get_workload(batch_size=1)
    found = names(mod, params, blocked_records(tasks_of(mod, params), lambda task, knob: 16))
    flattened = network == "vgg"  # 7x7 maps go to the dense layer
    assert (found.count("nn.conv2d"), found.count("nn.contrib_conv2d_NCHWc")) == (0, convolutions)
    assert found.count("layout_transform") == flattened


def test_convolutions_without_records_get_nchw():
    n = Net()
    mod, params = n.module(n.conv(n.conv(n.conv(n.x, 8, 16), 16, 16), 16, 8))
    tasks = [t for t in tasks_of(mod, params) if t.args[1][1][:2] != (16, 16)]
    found = names(mod, params, blocked_records(tasks))
    assert found.count("nn.conv2d") == 3 and found.count("layout_transform") == 0  # whose neighbour has none gains nothing


def test_a_template_that_fails_costs_its_schedule_only(caplog):
    """The convolution of blocks has a definition of its own."""
    n = Net()
    mod, params = n.module(relay.nn.batch_flatten(n.conv(n.conv(n.conv(n.x, 8, 16), 16, 16, groups=16), 16, 8)))
    log = blocked_records(tasks_of(mod, params))
    for inp, _ in log:
        inp.config._entity_map.pop("tile_ow")
    x = np.random.default_rng(1).integers(-2, 3, SHAPE).astype("float32")
    got = output(build(mod, params, LLVM, log), LLVM, x)
    assert caplog.text.count("its template failed") == 3
    np.testing.assert_array_equal(got, output(build(mod, params, LLVM), LLVM, x))


def test_not_below_level_3_and_not_beside_the_auto_scheduler():
    n = Net()
    mod, params = n.module(n.conv(n.conv(n.x, 8, 16), 16, 8))
    log = blocked_records(tasks_of(mod, params))
    assert "nn.conv2d" not in names(mod, params, log)
    assert "nn.conv2d" in names(mod, params, log, config={"relay.backend.use_auto_scheduler": True})
    with autotvm.apply_history_best(log), transform.PassContext(opt_level=2):
        optimized = pipeline.optimize(mod, ns.target.Target(LLVM), params)
    assert "nn.contrib" not in str(optimized["main"])
