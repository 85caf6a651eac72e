"""Every shipped template with shapes, a reference in NumPy, and what follows it in a network.

Data are small whole numbers, so that sums are exact in float32 and results equal bit for bit. The transforms of Winograd's
convolution are made of fractions: its results are whole numbers after rounding.
"""

import dataclasses
import math
import random
from collections.abc import Callable

import numpy as np

import nestsmith as ns
from nestsmith import te, topi
from nestsmith.autotvm.strategy import _unblocked
from nestsmith.autotvm.task.dispatcher import ApplyConfig
from nestsmith.autotvm.task.space import ConfigSpace
from nestsmith.autotvm.task.task import lookup_task
from nestsmith.target import Target

MALI, GPU, CUDA = Target("opencl -device=mali"), Target("opencl"), Target("cuda -arch=sm_90")
X86, ARM = Target("llvm"), Target("llvm -keys=arm_cpu,cpu -device=arm_cpu")


# ---- references ----
def conv_nchw(x, w, stride, pad, dilation, groups=1):
    """[N, C, H, W] with [O, I, KH, KW], as windows of the padded input times the weight."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))).astype("float64")
    reach = [(k - 1) * dilation + 1 for k in w.shape[2:]]
    v = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))[:, :, ::stride, ::stride, ::dilation, ::dilation]
    n, c, oh, ow = v.shape[:4]
    v = v.reshape(n, groups, c // groups, oh, ow, *w.shape[2:])
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).astype("float64")
    out = np.einsum("ngcyxhw,gochw->ngoyx", v, w, optimize=True)
    return out.reshape(n, -1, oh, ow).astype("float32")


def _nhwc(f):
    def g(x, w, *a):
        return f(x.transpose(0, 3, 1, 2), w, *a).transpose(0, 2, 3, 1)

    return g


def _depthwise(x, w, s, p, d):
    return conv_nchw(x, w.reshape(-1, 1, *w.shape[2:]), s, p, d, x.shape[1])


conv_nhwc = _nhwc(lambda x, w, *a: conv_nchw(x, w.transpose(3, 2, 0, 1), *a))
depthwise_nhwc = _nhwc(lambda x, w, *a: _depthwise(x, w.transpose(2, 3, 0, 1), *a))


# ---- cases: a shape is (N, CI, H, CO, K, stride, padding, dilation), or (M, K, N) for products ----
def _conv_tensors(layout):
    def make(n, ci, h, co, k, *_):
        data, weight = ((n, ci, h, h), (co, ci, k, k)) if layout == "NCHW" else ((n, h, h, ci), (k, k, ci, co))
        return te.placeholder(data, name="data"), te.placeholder(weight, name="weight")

    return make


def _depthwise_tensors(layout):
    def make(n, c, h, _, k, *rest):
        data, weight = ((n, c, h, h), (c, 1, k, k)) if layout == "NCHW" else ((n, h, h, c), (k, k, c, 1))
        return te.placeholder(data, name="data"), te.placeholder(weight, name="weight")

    return make


def _window(n, ci, h, co, k, s, p, d):
    return (s, s), (p, p, p, p), (d, d)


def _plain(*shape):
    return (*_window(*shape), "float32")


def _blocked(*shape):
    return (*_window(*shape), "NCHW", "NCHW", "float32")


def _product(*shape):
    return None, "float32"


@dataclasses.dataclass
class Case:
    """A template: where it runs, its tensors and arguments by shape, the reference, shapes small and real."""

    target: Target
    tensors: Callable
    args: Callable
    reference: Callable
    small: list
    real: list
    exact: bool = True
    result: Callable = staticmethod(lambda t: t)

    def want(self, arrays, shape):
        return self.reference(*arrays, *(shape[5:] if len(shape) > 3 else ()))


# (small ones: every knob has choices, sides differ from powers of two; a stride, a dilation, a batch, no padding)
_SMALL = [(1, 4, 12, 8, 3, 1, 1, 1), (2, 6, 11, 4, 3, 2, 0, 1), (1, 4, 10, 6, 3, 1, 2, 2), (1, 8, 6, 12, 1, 1, 0, 1)]
_SMALL3 = [(1, 4, 12, 8, 3, 1, 1, 1), (2, 6, 7, 4, 3, 1, 0, 1)]
_REAL = [  # ResNet-18: stem, 3x3, down, projection; VGG-16; MobileNet's pointwise
    (1, 3, 224, 64, 7, 2, 3, 1), (1, 64, 56, 64, 3, 1, 1, 1), (1, 64, 56, 128, 3, 2, 1, 1), (1, 256, 14, 512, 1, 2, 0, 1),
    (1, 128, 112, 128, 3, 1, 1, 1), (1, 512, 14, 512, 3, 1, 1, 1), (1, 32, 112, 64, 1, 1, 0, 1),
]
_REAL3 = [s for s in _REAL if s[4:] == (3, 1, 1, 1)] + [(1, 256, 14, 256, 3, 1, 1, 1), (1, 512, 7, 512, 3, 1, 1, 1)]
_DW_SMALL = [(1, 8, 12, 8, 3, 1, 1, 1), (2, 6, 11, 6, 3, 2, 1, 1)]
_DW_REAL = [(1, 32, 112, 32, 3, 1, 1, 1), (1, 64, 112, 64, 3, 2, 1, 1), (1, 512, 14, 512, 3, 1, 1, 1)]
_MM_SMALL = [(4, 24, 12), (1, 16, 10)]
_MM_REAL = [(1, 512, 1000), (1, 1024, 1000), (1, 4096, 1000), (8, 512, 1000)]

_nchw, _nhwc_t = _conv_tensors("NCHW"), _conv_tensors("NHWC")
_dw, _dw_nhwc = _depthwise_tensors("NCHW"), _depthwise_tensors("NHWC")


def _matrices(m, k, n):
    return te.placeholder((m, k), name="data"), te.placeholder((n, k), name="weight")


def _bytes(m, k, n):
    return te.placeholder((m, k), name="data", dtype="int8"), te.placeholder((n, k), name="weight", dtype="int8")


def _times(x, w):
    return (x.astype("float64") @ w.T.astype("float64")).astype("float32")


CASES = {
    "conv2d_nchw_spatial_pack.mali": Case(MALI, _nchw, _plain, conv_nchw, _SMALL, _REAL),
    "conv2d_nhwc_spatial_pack.mali": Case(MALI, _nhwc_t, _plain, conv_nhwc, _SMALL, _REAL),
    "conv2d_nchw_winograd.mali": Case(MALI, _nchw, _plain, conv_nchw, _SMALL3, _REAL3, exact=False),
    "depthwise_conv2d_nchw.mali": Case(MALI, _dw, _plain, _depthwise, _DW_SMALL, _DW_REAL),
    "depthwise_conv2d_nhwc.mali": Case(MALI, _dw_nhwc, _plain, depthwise_nhwc, _DW_SMALL, _DW_REAL),
    "dense.mali": Case(MALI, _matrices, _product, _times, _MM_SMALL, _MM_REAL),
    "conv2d_nchw.cuda": Case(GPU, _nchw, _plain, conv_nchw, _SMALL, _REAL),
    "conv2d_nchw_winograd.cuda": Case(
        GPU, _nchw, _plain, conv_nchw, [*_SMALL3, (1, 4, 8, 4, 5, 1, 2, 1)], _REAL3, exact=False
    ),
    "depthwise_conv2d_nchw.cuda": Case(GPU, _dw, _plain, _depthwise, _DW_SMALL, _DW_REAL),
    "dense_small_batch.gpu": Case(GPU, _matrices, _product, _times, _MM_SMALL, _MM_REAL),
    "dense_large_batch.gpu": Case(GPU, _matrices, _product, _times, [(32, 16, 24)], [(32, 512, 1000)]),
    "dense_int8.cuda": Case(GPU, _bytes, lambda *_: (None, "int32"), lambda x, w: x.astype("int32") @ w.T.astype("int32"),
                            [(4, 16, 12), (2, 20, 10)], [(1, 512, 1000), (32, 4096, 1000)]),
    "conv2d_NCHWc.x86": Case(X86, _nchw, _blocked, conv_nchw, _SMALL, _REAL, result=_unblocked),
    "depthwise_conv2d_NCHWc.x86": Case(X86, _dw, _blocked, _depthwise, _DW_SMALL, _DW_REAL, result=_unblocked),
    "dense_nopack.x86": Case(X86, _matrices, _product, _times, _MM_SMALL, _MM_REAL),
    "dense_pack.x86": Case(X86, _matrices, _product, _times, _MM_SMALL, _MM_REAL),
    "conv2d_nchw_spatial_pack.arm_cpu": Case(ARM, _nchw, _plain, conv_nchw, _SMALL, _REAL),
    "conv2d_nchw_winograd.arm_cpu": Case(ARM, _nchw, _plain, conv_nchw, _SMALL3, _REAL3, exact=False),
    "depthwise_conv2d_nchw.arm_cpu": Case(ARM, _dw, _plain, _depthwise, _DW_SMALL, _DW_REAL),
}


def tail(out):
    """What follows the operator in a network: a bias for each element, relu, the sum with another branch."""
    bias, branch = te.placeholder(out.shape, name="bias"), te.placeholder(out.shape, name="branch")
    return topi.add(topi.relu(topi.add(out, bias)), branch), [bias, branch]


def instantiate(name, shape, cfg, target=None, followed=False):
    """(schedule, tensors) of a template with a configuration; `followed` by `tail`."""
    case, entry = CASES[name], lookup_task(name)
    inputs = list(case.tensors(*shape))
    with ApplyConfig(cfg), target or case.target:
        out = case.result(entry.fcompute(*inputs, *case.args(*shape)))
        more = []
        if followed:
            out, more = tail(out)
        return entry.fschedule([out]), [*inputs, *more, out]


def data(tensors, seed):
    """Arrays of small whole numbers for the inputs."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, topi.get_const_tuple(t.shape)).astype(t.dtype) for t in tensors[:-1]]


def expected(name, shape, arrays):
    """What comes out for `arrays`, with `tail` if there are more than the operator's own two."""
    want = CASES[name].want(arrays[:2], shape)
    return np.maximum(want + arrays[2], 0) + arrays[3] if len(arrays) > 2 else want


def check(name, got, want):
    """Equal bit for bit, for Winograd after rounding."""
    if not CASES[name].exact:
        assert np.abs(got - want).max() < 0.02 * math.sqrt(1 + np.abs(want).max())
        got = np.rint(got)
    np.testing.assert_array_equal(got, want)


# ---- configurations ----
def space_of(name, shape, target=None):
    """All configurations for a shape."""
    space = ConfigSpace()
    instantiate(name, shape, space, target)
    return space


def drawn(space, count, seed):
    """The first, the last and some random configurations, without those that the template refuses before a schedule exists."""
    rng, n = random.Random(seed), space.range_length
    return [space.get(i) for i in [0, n - 1, *(rng.randrange(n) for _ in range(count))]]


def device_of(target):
    """Where programs of a target run."""
    return ns.device("cpu" if target.kind.device_type == 1 else target.kind.name, 0)


def build_and_run(name, shape, cfg, seed, target=None, followed=False):
    """One configuration, compiled, on its device."""
    target = target or CASES[name].target
    s, tensors = instantiate(name, shape, cfg, target, followed)
    if not cfg.valid():
        return "refused"
    arrays = data(tensors, seed)
    want = expected(name, shape, arrays)
    module = ns.build(s, tensors, target)
    device = device_of(target)
    on_device = [ns.nd.array(a, device) for a in (*arrays, np.full(want.shape, np.nan, "float32"))]
    module(*on_device)
    check(name, on_device[-1].numpy(), want)
    return "right"
