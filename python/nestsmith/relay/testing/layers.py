"""Layers that create their own weight variables, named after the layer."""

from ..expr import Function, free_vars, var
from ..op import nn
from ..ty import TensorType

__all__ = ["conv2d", "conv3d", "conv2d_transpose", "batch_norm_infer", "dense_add_bias", "conv_kernel_layout"]

_KERNEL = {"NCHW": "OIHW", "NHWC": "HWIO", "NCDHW": "OIDHW", "NDHWC": "DHWIO"}


def conv_kernel_layout(data_layout, is_depthwise=False):
    """Kernel layout that goes with a data layout."""
    if data_layout not in _KERNEL:
        raise ValueError(f"layout {data_layout!r}; use one of {', '.join(_KERNEL)}")
    return "HWOI" if is_depthwise and data_layout == "NHWC" else _KERNEL[data_layout]


def data(batch_size, shape, dtype):
    """The variable that a network reads."""
    return var("data", TensorType((batch_size, *shape), dtype))


def network(result):
    """The function of all that `result` reads."""
    return Function(free_vars(result), result)


def one_of(layout, *layouts):
    """Raises ValueError if `layout` is none of two layouts."""
    if layout not in layouts:
        raise ValueError(f"layout {layout!r}; use {' or '.join(layouts)}")


def conv2d(data, weight=None, **kwargs):
    """Convolution without bias; weight ``name_weight``."""
    name = kwargs.pop("name")
    return nn.conv2d(data, weight or var(name + "_weight"), **kwargs)


def conv3d(data, weight=None, **kwargs):
    """3-D convolution without bias; weight ``name_weight``."""
    name = kwargs.pop("name")
    return nn.conv3d(data, weight or var(name + "_weight"), **kwargs)


def conv2d_transpose(data, weight=None, **kwargs):
    """Transposed convolution without bias; weight ``name_weight``."""
    name = kwargs.pop("name")
    return nn.conv2d_transpose(data, weight or var(name + "_weight"), **kwargs)


def batch_norm_infer(data, name, **kwargs):
    """The data result of a batch normalisation with variables ``name_gamma``, ``_beta``, ``_moving_mean``,
    ``_moving_var``."""
    args = [var(f"{name}_{s}") for s in ("gamma", "beta", "moving_mean", "moving_var")]
    return nn.batch_norm(data, *args, **kwargs)[0]


def dense_add_bias(data, units, name, weight=None, bias=None):
    """Dense layer with bias: ``name_weight``, ``name_bias``."""
    out = nn.dense(data, weight or var(name + "_weight"), units=units)
    return nn.bias_add(out, bias or var(name + "_bias"), axis=-1)
