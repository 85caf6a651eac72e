"""The operator library: functions from tensors to tensors, built on :mod:`nestsmith.te`.

Each module lists its signatures at its top: :mod:`.nn` (convolutions, matrix products, pooling, softmax),
:mod:`.broadcast`, :mod:`.elemwise`, :mod:`.transform`, :mod:`.reduction`. Names of stages and axes are fixed, because
they are part of the keys of tuning logs; :func:`naming` switches the two parts that changed between releases.
"""

import importlib as _importlib

from .. import _absent
from ..te import extern
from ..tir import decl_buffer, div, floordiv, floormod, ir_builder
from . import image, nn, random, utils, vision
from .broadcast import (
    add,
    atan2,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    broadcast_to,
    copysign,
    divide,
    equal,
    floor_divide,
    floor_mod,
    greater,
    greater_equal,
    hypot,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    not_equal,
    power,
    right_shift,
    subtract,
    where,
)
from .contraction import einsum, matmul, tensordot
from .elemwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitwise_not,
    cast,
    ceil,
    clip,
    copy,
    cos,
    cosh,
    erf,
    erfc,
    exp,
    exp2,
    exp10,
    expm1,
    floor,
    full,
    full_like,
    identity,
    isfinite,
    isinf,
    isnan,
    leaky_relu,
    log,
    log1p,
    log2,
    log10,
    negative,
    ones,
    relu,
    round,
    round_tf32,
    rsqrt,
    scalar_const,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    zeros,
)
from .indexing import (
    adv_index,
    gather_nd,
    invert_permutation,
    matrix_set_diag,
    reverse_sequence,
    scatter_elements,
    scatter_nd,
    searchsorted,
    sequence_mask,
    sliding_window,
    sparse_to_dense,
    strided_set,
    trilu,
    unique,
    unravel_index,
)
from .math import (
    ceil_log2,
    collapse_sum,
    elemwise_sum,
    expand_like,
    fast_erf,
    fast_exp,
    fast_tanh,
    fixed_point_multiply,
    fixed_point_multiply_per_axis,
    layout_transform,
    meshgrid,
    ndarray_size,
    reinterpret,
)
from .naming import naming, placeholder_name, pool_name
from .nn.dense import batch_matmul, dense
from .nn.softmax import log_softmax, softmax
from .reduction import all, any, argmax, argmin, max, mean, min, sum, variance
from .reduction import prod_ as prod
from .scan import cummax, cummin, cumprod, cumsum, logcumsumexp
from .sort import argsort, sort, topk
from .transform import (
    arange,
    check_index,
    concatenate,
    expand_dims,
    flip,
    gather,
    one_hot,
    pad,
    repeat,
    reshape,
    shape,
    split,
    squeeze,
    stack,
    strided_slice,
    take,
    tile,
    transpose,
)
from .utils import InvalidShapeError, const_vector, get_const_int, get_const_tuple, make_idx, within_index

_LATER = ("adreno", "arm_cpu", "bifrost", "cuda", "generic", "gpu", "hexagon", "hls", "intel_graphics", "mali", "per_target", "rocm", "x86")


def __getattr__(name):
    if name in _LATER or name == "testing":
        return _importlib.import_module(f"{__name__}.{name}")
    raise _absent.attribute_error(__name__, name)
