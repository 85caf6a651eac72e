"""The operator library: functions from tensors to tensors, built on :mod:`nestsmith.te`.

Each module lists its signatures at its top: :mod:`.nn` (convolutions, matrix products, pooling, softmax),
:mod:`.broadcast`, :mod:`.elemwise`, :mod:`.transform`, :mod:`.reduction`. Names of stages and axes are fixed, because they
are part of the keys of tuning logs; :func:`naming` switches the two parts that changed between releases.
"""

from . import nn
from .broadcast import (
    add, bitwise_and, bitwise_or, bitwise_xor, broadcast_to, divide, equal, floor_divide, floor_mod, greater, greater_equal,
    left_shift, less, less_equal, logical_and, logical_not, logical_or, logical_xor, maximum, minimum, mod, multiply,
    not_equal, power, right_shift, subtract, where,
)
from .elemwise import (
    abs, acos, acosh, asin, asinh, atan, atanh, bitwise_not, cast, ceil, clip, copy, cos, cosh, erf, exp, exp2, exp10, floor,
    full, full_like, identity, isfinite, isinf, isnan, leaky_relu, log, log1p, log2, log10, negative, ones, relu, round,
    rsqrt, scalar_const, sigmoid, sign, sin, sinh, sqrt, tan, tanh, trunc, zeros,
)
from .naming import naming, placeholder_name, pool_name
from .nn.dense import batch_matmul, dense, matmul
from .nn.softmax import log_softmax, softmax
from .reduction import all, any, argmax, argmin, max, mean, min, prod_ as prod, sum, variance
from .transform import (
    arange, concatenate, expand_dims, flip, gather, one_hot, pad, repeat, reshape, split, squeeze, stack, strided_slice,
    take, tile, transpose,
)
from .util import get_const_int, get_const_tuple
