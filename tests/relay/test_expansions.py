"""Expansions: a depthwise convolution takes in the 1x1 convolution that only it reads."""

import numpy as np
import pytest

from nestsmith import IRModule, relay, transform
from nestsmith.relay.expr import Call, Function, post_order
from nestsmith.relay.pipeline import fuse_module, optimize
from nestsmith.target import Target

nn = relay.nn
ON = {"relay.FuseOps.expansions": True}


def bottleneck(dtype="float32", narrow=8, wide=24, taps=3, pad=1, reader=None, kernel=1, last=nn.relu):
    """A 1x1 convolution, bias and clip, then windows of each channel and `last`; `reader` makes a second result of what is between."""
    x = relay.var("x", shape=(1, 8, 8, narrow), dtype=dtype)

    def weight(*shape):
        return relay.const(np.ones(shape, dtype))

    sizes = {"channels": wide, "kernel_size": kernel, "padding": kernel // 2}
    e = nn.conv2d(x, weight(kernel, kernel, narrow, wide), data_layout="NHWC", kernel_layout="HWIO", **sizes)
    e = relay.clip(relay.add(e, weight(1, 1, 1, wide)), 0, 6)
    taps_of = weight(taps, taps, wide, 1)
    d = nn.conv2d(e, taps_of, channels=wide, groups=wide, kernel_size=taps, padding=pad, data_layout="NHWC", kernel_layout="HWOI")
    out = last(d)
    return relay.Tuple([out, reader(e)]) if reader else out


def kernels(body, config=ON):
    mod = IRModule.from_expr(relay.Function(relay.expr.free_vars(body), body))
    with transform.PassContext(opt_level=3, config=config):
        made = fuse_module(optimize(mod, Target("llvm")))["main"].body
    calls = [e for e in post_order(made) if isinstance(e, Call) and isinstance(e.op, Function)]
    return [[c.op_name.removeprefix("nn.") for c in post_order(e.op.body) if isinstance(c, Call)] for e in calls]


FIRST, SECOND = ["conv2d", "add", "clip"], ["conv2d", "relu"]


def test_one_kernel_where_it_is_asked_for():
    assert kernels(bottleneck()) == [FIRST + SECOND]
    assert kernels(bottleneck(narrow=3, kernel=3)) == [FIRST + SECOND]  # reads an image
    assert kernels(bottleneck(), {}) == [FIRST, SECOND]


@pytest.mark.parametrize(
    "case",
    [
        {"kernel": 3},  # more than one pixel: computed twice at borders of tiles it would cost more than it saves
        {"wide": 8},  # no wider than what it reads
        {"wide": 20},  # channels that do not fill vectors
        {"pad": 0},
        {"taps": 1},
        {"dtype": "float16"},
        {"reader": nn.softmax},
        {"last": lambda windows: windows},  # the sketch is for a kernel with something after the windows
    ],
)
def test_other_chains_are_two_kernels(case):
    made = kernels(bottleneck(**case))
    assert [k for k in made if k.count("conv2d") > 1] == [] and sum(k.count("conv2d") for k in made) == 2


IMAGE = {**ON, "relay.FuseOps.first_layout": True}


def first(channels=3, kernel=3, reader=None, wide=False, before=lambda x: x):
    """An image brought into NHWC after `before`, a convolution of it and, if `wide`, a depthwise one; `reader` makes another result of it."""
    x = relay.layout_transform(before(relay.var("x", shape=(1, channels, 8, 8))), "NCHW", "NHWC")
    sizes = {"channels": 16, "kernel_size": kernel, "padding": kernel // 2, "data_layout": "NHWC"}
    e = nn.relu(nn.conv2d(x, relay.const(np.ones((kernel, kernel, channels, 16), "float32")), kernel_layout="HWIO", **sizes))
    if wide:
        taps = relay.const(np.ones((3, 3, 16, 1), "float32"))
        e = nn.relu(nn.conv2d(e, taps, groups=16, kernel_layout="HWOI", **{**sizes, "kernel_size": 3, "padding": 1}))
    return relay.Tuple([e, reader(x)]) if reader else e


def test_an_image_is_read_as_it_lies():
    assert kernels(first(), IMAGE) == [["layout_transform", *SECOND]]
    assert kernels(first(wide=True), IMAGE) == [["layout_transform", *SECOND, *SECOND]]
    assert kernels(first()) == [["layout_transform"], SECOND]


RESIZED = lambda x: relay.image.resize2d(x, (12, 12), layout="NCHW")  # noqa: E731 - computed once, not for each tap and channel


@pytest.mark.parametrize("case", [{"channels": 8}, {"kernel": 7}, {"reader": nn.softmax}, {"before": RESIZED}, {"before": relay.exp}])
def test_other_changes_of_layout_are_kernels(case):
    assert "layout_transform" in [k[-1] if "before" in case else k[0] for k in kernels(first(**case), IMAGE) if "conv2d" not in k]
