"""Which templates there are for an operator on a target: one table.

A row is a template with its priority, when it fits, and how the attributes of a call become its arguments. Rows of an operator are
asked in their order, which is also the order of tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import te
from ..relay.op.blocks import layout_shape, parse_layout
from ..relay.op.nn.convolution import is_depthwise
from ..topi.util import INJECTIVE, get_const_tuple

__all__ = ["Choice", "Row", "choices", "operators"]

BLOCKED = "nn.contrib_conv2d_NCHWc"  # a convolution of blocks of channels


class _Conv(NamedTuple):
    """What decides about a convolution."""

    layout: str
    kernel: tuple  # height and width of the window
    plain: bool  # one group
    depthwise: bool  # a window for each channel
    strides: tuple
    padding: tuple
    dilation: tuple
    dtype: str

    @property
    def dense_steps(self):
        return self.strides == self.dilation == (1, 1)


class _Dense(NamedTuple):
    rows: int
    dtype: str
    bytes: bool = False  # int8 summed in int32, a multiple of four of them


def _plain_data(call):
    """The shape of a convolution's data in NCHW."""
    return layout_shape(call.args[0].checked_type.concrete_shape, parse_layout(call.attrs.data_layout), parse_layout("NCHW"))


def _conv(call):
    a = call.attrs
    kernel = dict(zip(a.kernel_layout, call.args[1].checked_type.concrete_shape))
    layout = "NCHW" if call.op_name == BLOCKED else a.data_layout, a.kernel_layout
    depthwise = is_depthwise(call)
    known = {("NCHW", "OIHW"): "NCHW", ("NHWC", "HWOI" if depthwise else "HWIO"): "NHWC"}
    return _Conv(known.get(layout, ""), (kernel["H"], kernel["W"]), a.groups == 1, depthwise, tuple(a.strides),
                 tuple(a.padding), tuple(a.dilation), call.checked_type.dtype)


def _dense_facts(call):
    shape = call.args[0].checked_type.concrete_shape
    kinds = [*(x.checked_type.dtype for x in call.args[:2]), call.checked_type.dtype]
    return _Dense(shape[0] if len(shape) == 2 else 0, kinds[2], kinds == ["int8", "int8", "int32"] and shape[-1] % 4 == 0)


_FACTS = {"nn.conv2d": _conv, BLOCKED: _conv, "nn.dense": _dense_facts}


# ---- arguments ----
def _window_args(x, f):
    return *x, f.strides, f.padding, f.dilation, f.dtype


def _blocked_args(x, f):
    return *x, f.strides, f.padding, f.dilation, f.layout, f.layout, f.dtype


def _dense_args(x, f):
    return *x, None, f.dtype


def _unblocked(out):
    """[N, C/b, H, W, b] as [N, C, H, W]."""
    n, chunks, h, w, b = get_const_tuple(out.shape)
    return te.compute((n, chunks * b, h, w), lambda n, c, h, w: out(n, c // b, h, w, c % b), name="output_unpack",
                      tag=INJECTIVE)


# ---- the table ----
class Row(NamedTuple):
    """A template for an operator.

    Attributes
    ----------
    template : str
    priority : int
        The largest one is taken where nothing is recorded.
    fits : callable
        Facts of a call -> whether it can be used.
    args : callable
        (tensors, facts) -> arguments of the template.
    block : str, optional
        The result is [N, C/b, H, W, b]: the knob whose innermost part is b.
    """

    template: str
    priority: int
    fits: Callable[[Any], bool]
    args: Callable[[Any, Any], tuple]
    block: str | None = None


def _nchw(f):
    return f.plain and f.layout == "NCHW"


def _nhwc(f):
    return f.plain and f.layout == "NHWC"


def _depthwise(layout):
    return lambda f: f.depthwise and f.layout == layout


def _winograd3(f):
    return _nchw(f) and f.kernel == (3, 3) and f.dense_steps and _floats(f)


def _winograd(f):
    return _nchw(f) and f.kernel[0] == f.kernel[1] and 3 <= f.kernel[0] <= 7 and f.dense_steps and _floats(f)


def _floats(f):
    return f.dtype in ("float32", "float64")


def _matrix(f):
    return f.rows > 0


_TABLE = {
    ("nn.conv2d", "mali"): (Row("conv2d_nchw_spatial_pack.mali", 10, _nchw, _window_args),
                            Row("conv2d_nchw_winograd.mali", 5, _winograd3, _window_args),
                            Row("conv2d_nhwc_spatial_pack.mali", 10, _nhwc, _window_args),
                            Row("depthwise_conv2d_nchw.mali", 10, _depthwise("NCHW"), _window_args),
                            Row("depthwise_conv2d_nhwc.mali", 10, _depthwise("NHWC"), _window_args)),
    ("nn.dense", "mali"): (Row("dense.mali", 10, _matrix, _dense_args),),
    ("nn.conv2d", "gpu"): (Row("conv2d_nchw.cuda", 10, _nchw, _window_args),
                           Row("conv2d_nchw_winograd.cuda", 5, _winograd, _window_args),
                           Row("depthwise_conv2d_nchw.cuda", 10, _depthwise("NCHW"), _window_args)),
    ("nn.dense", "gpu"): (Row("dense_int8.cuda", 10, lambda f: f.rows > 0 and f.bytes, _dense_args),
                          Row("dense_small_batch.gpu", 10, lambda f: f.rows > 0 and not f.bytes, _dense_args),
                          Row("dense_large_batch.gpu", 5, lambda f: f.rows >= 32 and not f.bytes, _dense_args)),
    ("nn.conv2d", "arm_cpu"): (Row("conv2d_nchw_spatial_pack.arm_cpu", 10, _nchw, _window_args),
                               Row("conv2d_nchw_winograd.arm_cpu", 5, _winograd3, _window_args),
                               Row("depthwise_conv2d_nchw.arm_cpu", 10, _depthwise("NCHW"), _window_args)),
    ("nn.conv2d", "cpu"): (Row("conv2d_NCHWc.x86", 10, _nchw, _blocked_args, "tile_oc"),
                           Row("depthwise_conv2d_NCHWc.x86", 10, _depthwise("NCHW"), _blocked_args, "tile_oc")),
    ("nn.dense", "cpu"): (Row("dense_nopack.x86", 5, _matrix, _dense_args),
                          Row("dense_pack.x86", 10, _matrix, _dense_args)),
}


def operators():
    """Names of the operators that templates exist for, sorted."""
    return sorted({op for op, _ in _TABLE} | {BLOCKED})


class Choice(NamedTuple):
    """A template for a call.

    Attributes
    ----------
    row : Row
    args : tuple
        Tensors first.
    recorded : tuple
        Arguments as they are where the template is tuned: with data in the layout of the network.
    plain : bool
        The result has the layout of the network.
    """

    row: Row
    args: tuple
    recorded: tuple
    plain: bool = True

    def result(self, out):
        """What the template returns as the operator's result."""
        return _unblocked(out) if self.row.block and self.plain else out


def choices(call, inputs, target):
    """The templates for a call, in the order of the table.

    Parameters
    ----------
    call : relay.Call
        Its type is inferred and its shapes are known.
    inputs : list of te.Tensor
    target : Target

    Returns
    -------
    list of Choice
        Empty if there are none: the first of the target's keys that the table knows for the operator counts.
    """
    name = "nn.conv2d" if call.op_name == BLOCKED else call.op_name
    rows = next((r for r in (_TABLE.get((name, key)) for key in target.keys) if r), ())
    if call.op_name == BLOCKED:
        rows = tuple(r for r in rows if r.block)
    if not rows:
        return []
    facts = _FACTS[call.op_name](call)
    recorded, plain = inputs, True
    if call.op_name == BLOCKED:
        recorded = [te.placeholder(_plain_data(call), inputs[0].dtype), *inputs[1:]]
        plain = call.attrs.out_layout == "NCHW"
    return [Choice(row, row.args(inputs, facts), row.args(recorded, facts), plain) for row in rows if row.fits(facts)]
