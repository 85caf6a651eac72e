"""Neural-network operators.

Signatures (tensors first; a window is an int or one int per spatial dimension; a padding is ``"SAME"``, ``"VALID"``, an
int, one int per spatial dimension, or all amounts before and then all amounts after)::

    conv2d(data, kernel, strides, padding, dilation, data_layout="NCHW", kernel_layout="", out_dtype=None)
    conv2d_nhwc / conv2d_nchw / conv2d_hwcn(data, kernel, stride, padding, dilation, out_dtype=None)
    group_conv2d_nchw / group_conv2d_nhwc(data, kernel, stride, padding, dilation, groups, out_dtype=None)
    conv1d_ncw / conv1d_nwc(data, kernel, stride, padding, dilation)
    conv3d_ncdhw / conv3d_ndhwc(data, kernel, stride, padding, dilation, groups=1, out_dtype=None)
    conv(data, kernel, stride, padding, dilation, groups, data_layout, kernel_layout="", out_dtype=None)
    conv2d_winograd_nhwc(data, kernel_hwio, strides, padding, dilation, out_dtype, pre_computed=False)
    conv2d_winograd_nhwc_without_weight_transform(data, packed, strides, padding, dilation, out_dtype)
    conv2d_winograd_weight_transform(kernel_oihw, tile_size)   -> [tile+2, tile+2, CO, CI]
    winograd_tile_size(height)                                 -> 4 or 2
    depthwise_conv2d_nhwc(data, kernel, stride, padding, dilation, kernel_layout="HWOI", out_dtype=None)
    depthwise_conv2d_nchw(data, kernel, stride, padding, dilation, out_dtype=None)
    conv2d_transpose(data, kernel, strides, padding, dilation=1, groups=1, data_layout="NCHW", kernel_layout="IOHW",
                     out_dtype=None, output_padding=0)
    conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype=None, output_padding=0)
    group_conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype, output_padding, groups)
    dense(data, weight, bias=None, out_dtype=None)             weight [N, K]
    matmul(a, b, bias=None, out_dtype=None, transpose_a=False, transpose_b=False)   matmul_in_parts(a, b, parts)
    batch_matmul(a, b, oshape=None, out_dtype=None, transpose_a=False, transpose_b=True)
    pool1d / pool2d / pool3d(data, kernel, stride, dilation, padding, pool_type, ceil_mode=False, layout,
                             count_include_pad=True)
    global_pool(data, pool_type, layout="NCHW")   adaptive_pool(data, output_size, pool_type, layout="NCHW")
    softmax(x, axis=-1)   log_softmax(x, axis=-1)   lrn(data, size, axis=1, alpha=0.0001, beta=0.75, bias=2)
    relu(x), leaky_relu(x, alpha), prelu(x, slope, axis)       hand-written forms (networks: topi.relu, topi.leaky_relu)
    pad(data, pad_before, pad_after=None, pad_value=0.0, name="PadInput")
    mirror_pad(data, pad_before, pad_after=None, mode="SYMMETRIC", name="MirrorPadInput")
    upsampling(data, scale_h, scale_w, layout="NCHW", method="nearest_neighbor", align_corners=False)
    depth_to_space(data, block_size, layout="NCHW", mode="DCR")   space_to_depth(data, block_size, layout="NCHW")
    flatten(x)   bias_add(x, bias, axis=1)   scale_shift_nchw / scale_shift_nhwc(x, scale, shift)
    batch_norm(x, gamma, beta, mean, var, axis=1, epsilon=1e-5)   layer_norm(x, gamma, beta, axis=-1, epsilon=1e-5)
"""

from ..math import layout_transform
from ..transform import concatenate, strided_slice
from ..util import get_const_int, get_const_tuple, get_pad_tuple
from ..utils import equal_const_int, simplify, unpack_NCHWc_to_nchw
from . import utils
from .blocks import *  # noqa: F401,F403
from .conv import *  # noqa: F401,F403
from .dense import *  # noqa: F401,F403
from .depthwise import *  # noqa: F401,F403
from .elemwise import *  # noqa: F401,F403
from .lrn import lrn
from .mapping import *  # noqa: F401,F403
from .norm import *  # noqa: F401,F403
from .pad import mirror_pad, pad
from .pooling import *  # noqa: F401,F403
from .quantized import *  # noqa: F401,F403
from .softmax import *  # noqa: F401,F403
from .transposed import *  # noqa: F401,F403
from .utils import get_pad_tuple1d, get_pad_tuple3d, get_pad_tuple_generic
from .winograd import *  # noqa: F401,F403
