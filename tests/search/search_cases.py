"""Workloads, targets and shorthand of the search tests. Tasks of the reference networks: `peer_dags.dag_of`."""

import json

from nestsmith import _core, te, topi

CPU4 = _core.Target("llvm", (4, 64, 64, 0, 0, 0, 0, 0))
CPU2 = _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0))
CPU16 = _core.Target("llvm", (16, 64, 64, 0, 0, 0, 0, 0))
CUDA = _core.Target("cuda", sm=90)
MALI = _core.Target("opencl", (-1, 16, 64, 32768, 2147483647, 256, 1, 1), mali=True)


def matmul(n, m, k):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")]


def matmul_relu(n, m, k):
    a, b, c = matmul(n, m, k)
    return [a, b, topi.relu(c)]


def double_matmul(n):
    a, b, c = matmul(n, n, n)
    d = te.placeholder((n, n), name="D")
    r = te.reduce_axis((0, n), name="k")
    return [a, b, d, te.compute((n, n), lambda i, j: te.sum(c[i, r] * d[r, j], axis=[r]), name="E")]


def conv_bn_relu(n=1, h=56, w=56, ci=512, co=512, k=3, s=1, p=1):
    data = te.placeholder((n, ci, h, w), name="Data")
    kernel = te.placeholder((co, ci, k, k), name="Kernel")
    bias = te.placeholder((co, 1, 1), name="Bias")
    scale = te.placeholder((co, 1, 1), name="Bn_scale")
    offset = te.placeholder((co, 1, 1), name="Bn_offset")
    oh = (h + 2 * p - k) // s + 1
    conv = topi.nn.conv2d_nchw(data, kernel, s, p, 1)
    shape = (n, co, oh, oh)
    b = te.compute(shape, lambda i, j, y, x: conv[i, j, y, x] + bias[j, 0, 0], name="Bias_add")
    m = te.compute(shape, lambda i, j, y, x: b[i, j, y, x] * scale[j, 0, 0], name="Bn_mul")
    a = te.compute(shape, lambda i, j, y, x: m[i, j, y, x] + offset[j, 0, 0], name="Bn_add")
    return [data, kernel, bias, offset, scale, topi.relu(a)]


def max_pool(pad):
    x = te.placeholder((1, 56, 56, 512), name="A")
    return [x, topi.nn.pool2d(x, 2, 2, 1, pad, "max", layout="NHWC")]


def row_min(n=10, m=1024):
    x = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    return [x, te.compute((n,), lambda i: te.min(x[i, k], axis=[k]), name="B")]


def row_sum(n, m):
    x = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    return [x, te.compute((n,), lambda i: te.sum(x[i, k], axis=[k]), name="B")]


def scalar_sum(n):
    x = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), name="k")
    return [x, te.compute((), lambda *_: te.sum(x[k], axis=[k]), name="B")]


def softmax(*shape):
    x = te.placeholder(shape, name="A")
    return [x, topi.nn.softmax(x, axis=-1)]


def winograd(hw=28, c=128):
    x = te.placeholder((1, hw, hw, c), name="inputs")
    a = topi.nn.winograd_tile_size(hw) + 2
    w = te.placeholder((a, a, c, c), name="weight")
    return [x, w, topi.nn.conv2d_winograd_nhwc_without_weight_transform(x, w, 1, 1, 1)]


def policy(tensors, target, seed=1, threads=1, **params):
    dag = tensors if isinstance(tensors, _core.ComputeDAG) else _core.ComputeDAG(tensors)
    return _core.Policy(dag, target, params, seed, threads)


def sketches(tensors, target, **params):
    return policy(tensors, target, **params).sketches()


DONE = {"tiled": ("SP", "FSP", "FFSP"), "cache_read": ("CHR",), "cache_write": ("CHW",), "rfactor": ("RF",)}
REDUCE, THREAD_X = 1, 6  # kind and annotation of an iterator


def ask(state, question, stage):
    """What the rules have made of a stage: is it tiled, a cache_read, cache_write or rfactor, or summed cross_thread?"""
    if question == "cross_thread":
        stages = enumerate(state.stages())
        loops = [s[3] for i, s in stages if i == stage or (s[2] == 2 and s[4] == stage)]
        return any(it[1:3] == (REDUCE, THREAD_X) for one in loops for it in one)
    for name, at, *_ in reversed(state.step_tuples()):
        if name in DONE[question] and at == stage:
            return True
        stage -= name in _core.STEP_INSERTS and stage > at  # its number before the step
    return False


def where(state, stage):
    """0 root, 1 inlined, 2 attached."""
    return state.stages()[stage][2]


def steps(state):
    return json.loads(state.steps())
