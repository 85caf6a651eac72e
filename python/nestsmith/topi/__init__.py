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
from .broadcast import *  # noqa: F401,F403
from .contraction import *  # noqa: F401,F403
from .elemwise import *  # noqa: F401,F403
from .indexing import *  # noqa: F401,F403
from .math import *  # noqa: F401,F403
from .naming import naming, placeholder_name, pool_name
from .nn.dense import batch_matmul, dense
from .nn.softmax import log_softmax, softmax
from .reduction import *  # noqa: F401,F403
from .reduction import prod_ as prod
from .scan import *  # noqa: F401,F403
from .sort import *  # noqa: F401,F403
from .transform import *  # noqa: F401,F403
from .utils import InvalidShapeError, const_vector, get_const_int, get_const_tuple, make_idx, within_index

_LATER = ("adreno", "arm_cpu", "bifrost", "cuda", "generic", "gpu", "hexagon", "hls", "intel_graphics", "mali", "per_target", "rocm", "x86")


def __getattr__(name):
    if name in _LATER or name == "testing":
        return _importlib.import_module(f"{__name__}.{name}")
    raise _absent.attribute_error(__name__, name)
