"""Texts and keys of library operators against reference texts."""

import pytest
from test_resnet18_tasks import DATA

from helpers import Params
from nestsmith import _core, te, topi

nn = topi.nn
CASES = {}


def case(title):
    def add(f):
        CASES[title] = f
        return f

    return add


def bias_relu(p, y, *shape):
    return topi.relu(topi.add(y, p(*shape)))


case("conv2d NCHW, 3x3, stride 1, bias, relu")(
    lambda p: bias_relu(p, nn.conv2d_nchw(p(1, 64, 56, 56), p(64, 64, 3, 3), 1, 1, 1), 1, 64, 1, 1)
)
case("conv2d NHWC, dilation 2")(lambda p: nn.conv2d_nhwc(p(1, 32, 32, 16), p(3, 3, 16, 16), 1, 2, 2))
case("grouped conv2d NCHW, 4 groups")(
    lambda p: nn.group_conv2d_nchw(p(1, 64, 28, 28), p(128, 16, 3, 3), 1, (1, 1), 1, 4)
)
case("depthwise conv2d NHWC, multiplier 1, bias, relu")(
    lambda p: bias_relu(p, nn.depthwise_conv2d_nhwc(p(1, 28, 28, 256), p(3, 3, 256, 1), 1, 1), 1, 1, 1, 256)
)
case("depthwise conv2d NHWC, stride 2, bias, relu")(
    lambda p: bias_relu(p, nn.depthwise_conv2d_nhwc(p(1, 28, 28, 256), p(3, 3, 256, 1), 2, 1), 1, 1, 1, 256)
)
case("conv2d NHWC, 1x1, bias, relu")(
    lambda p: bias_relu(p, nn.conv2d_nhwc(p(1, 14, 14, 256), p(1, 1, 256, 512), 1, 0, 1), 1, 1, 1, 512)
)
case("depthwise conv2d NCHW, multiplier 2")(lambda p: nn.depthwise_conv2d_nchw(p(1, 32, 28, 28), p(32, 2, 3, 3), 1, 1))
case("conv3d NDHWC, 3x3x3, stride 1")(lambda p: nn.conv3d_ndhwc(p(1, 8, 56, 56, 64), p(3, 3, 3, 64, 64), 1, 1, 1))
case("conv3d NCDHW, 3x3x3, stride 2")(lambda p: nn.conv3d_ncdhw(p(1, 64, 8, 56, 56), p(128, 64, 3, 3, 3), 2, 1, 1))
case("conv2d_transpose NCHW, 4x4, stride 2, padding 1")(
    lambda p: nn.conv2d_transpose_nchw(p(1, 1024, 4, 4), p(1024, 512, 4, 4), 2, 1)
)
case("dense, rank-1 bias, relu")(lambda p: bias_relu(p, nn.dense(p(128, 768), p(3072, 768)), 3072))
case("batch_matmul NT, both batched")(lambda p: nn.batch_matmul(p(12, 128, 64), p(12, 128, 64)))
case("batch_matmul NN, second operand not batched")(
    lambda p: nn.batch_matmul(p(12, 128, 128), p(1, 128, 64), transpose_b=False)
)
case("max pool NCHW, 3x3, stride 2, no padding")(lambda p: nn.pool2d(p(1, 64, 111, 111), 3, 2, 1, 0, "max"))
case("average pool NCHW, 3x3, stride 1, padding 1, padding counted")(
    lambda p: nn.pool2d(p(1, 192, 35, 35), 3, 1, 1, 1, "avg")
)
case("average pool NCHW, 3x3, stride 2, padding 1, padding not counted")(
    lambda p: nn.pool2d(p(1, 192, 35, 35), 3, 2, 1, (1, 1), "avg", count_include_pad=False)
)
case("global average pool NHWC")(lambda p: nn.global_pool(p(1, 7, 7, 512), "avg", "NHWC"))
case("softmax over the last axis, rank 4")(lambda p: nn.softmax(p(1, 12, 128, 128)))
case("layer norm piece 1: mean over the last axis")(lambda p: topi.mean(p(1, 128, 768), 2, True))
case("layer norm piece 2: variance over the last axis, given the mean")(
    lambda p: topi.variance(p(1, 128, 768), p(1, 128, 1), -1)
)


@case("layer norm piece 3: normalise, scale, shift")
def _(p):
    x, mean, var = p(1, 128, 768), p(1, 128, 1), p(1, 128, 1)
    top, deviation = topi.subtract(x, mean), topi.sqrt(topi.add(var, topi.scalar_const(1e-12)))
    return topi.add(topi.multiply(topi.divide(top, deviation), p(768)), p(768))


@case("dense + gelu written with erf")
def _(p):
    x = nn.dense(p(128, 768), p(3072, 768))
    e = topi.erf(topi.multiply(x, topi.scalar_const(0.70710678)))
    half = topi.add(topi.multiply(e, topi.scalar_const(0.5)), topi.scalar_const(0.5))
    return topi.multiply(x, half)


case("dense + tanh")(lambda p: topi.tanh(nn.dense(p(1, 768), p(768, 768))))
case("clip to [0, 6]")(lambda p: topi.clip(p(1, 112, 112, 32), 0, 6))
case("reshape [1, 128, 12, 64] to [128, 768]")(lambda p: topi.reshape(p(1, 128, 12, 64), (128, 768)))
case("flatten [1, 512, 7, 7]")(lambda p: nn.flatten(p(1, 512, 7, 7)))
case("transpose [1, 128, 12, 64] with (0, 2, 1, 3)")(lambda p: topi.transpose(p(1, 128, 12, 64), (0, 2, 1, 3)))
case("concatenate three tensors along axis 1")(
    lambda p: topi.concatenate([p(1, 64, 35, 35), p(1, 96, 35, 35), p(1, 32, 35, 35)], 1)
)
case("take rows of an embedding table, 64-bit indices")(
    lambda p: topi.take(p(30522, 768), p(1, 128, dtype="int64"), axis=0)
)
case("sum over axes 1 and 2, dropped")(lambda p: topi.sum(p(4, 8, 16, 32), (1, 2)))


def inputs_in_order(out):
    """Placeholders as an extracted subgraph lists them: depth first over the input tensors."""
    seen, found = set(), []

    def visit(t):
        if t.op in seen:
            return
        seen.add(t.op)
        if t.op.is_placeholder:
            found.append(t)
        for i in t.op.input_tensors:
            visit(i)

    visit(out)
    return found


@pytest.mark.parametrize("ref", DATA["operators"], ids=lambda r: r["title"])
def test_reference_text(ref):
    with topi.naming("p", "pool"):
        out = CASES[ref["title"]](Params())
    dag = _core.ComputeDAG([*inputs_in_order(out), out])
    assert dag.text() == ref["text"]
    assert dag.text(simple=True) == ref["simple_text"]
    assert dag.workload_key() == ref["key"]
    if "published_hash_placeholder_names" in ref:
        old = CASES[ref["title"]](Params())
        assert ref["published_hash_placeholder_names"] in _core.ComputeDAG([old]).workload_key()


def test_argmax_text():
    a = te.placeholder((8, 16), name="A")
    assert _core.ComputeDAG([a, topi.argmax(a, 1)]).text() == (
        "A = PLACEHOLDER [8, 16]\n"
        "A_red_temp(ax0).v0 select(((argmax_lhs_1 > argmax_rhs_1) || ((argmax_lhs_1 == argmax_rhs_1) && "
        "(argmax_lhs_0 < argmax_rhs_0))), argmax_lhs_0, argmax_rhs_0)= (k1,A[ax0, k1])\n"
        "A_red_temp(ax0).v1 select((argmax_lhs_1 > argmax_rhs_1), argmax_lhs_1, argmax_rhs_1)= (k1,A[ax0, k1])\n"
        "A_red(ax0) = A_red_temp.v0[ax0]\n"
    )


def test_conv3d_of_rank_checks():
    with pytest.raises(ValueError, match="rank 5"):
        nn.conv3d_ncdhw(te.placeholder((1, 2, 3, 4)), te.placeholder((1, 2, 3, 4)), 1, 1, 1)
