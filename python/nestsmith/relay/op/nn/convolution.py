"""Convolutions of one to three spatial axes, and the transposed one."""

from .... import topi
from ....topi.util import named, placed
from ...passes import PassContext
from ...ty import Any, TensorType
from ..blocks import layout_shape, parse_layout, relayout
from ..layout import Plan, layout
from ..registry import ALWAYS, ANCHOR, call, register, tensor
from .product import parts_of_sum
from .util import SPATIAL, check_window, layout_axes, paddings, per_axis, product_type, window_out
from .winograd import transforms_weight, winograd_tile

__all__ = ["conv1d", "conv2d", "conv3d", "conv1d_transpose", "conv2d_transpose", "conv3d_transpose", "contrib_conv2d_nchwc", "conv_axes",
           "is_depthwise"]  # fmt: skip


def conv_axes(attrs, dims):
    """Positions in data layout (N, C, spatial...) and in kernel layout (O, I, spatial...)."""
    sp = SPATIAL[dims]
    return layout_axes(attrs.data_layout, "NC" + sp), layout_axes(attrs.kernel_layout, "OI" + sp)


def _conv_infer(dims, transposed=False):
    def infer(attrs, types):
        t = tensor(types, 0)
        if len(t.shape) != dims + 2:
            raise ValueError(f"the data must have rank {dims + 2}")
        dpos, kpos = conv_axes(attrs, dims)
        n, c, *sp = (t.shape[p] for p in dpos)
        groups = attrs.groups
        if groups < 1 or (not isinstance(c, Any) and c % groups):
            raise ValueError(f"{c} input channels do not divide into {groups} groups")
        if types[1] is None:
            if attrs.channels is None or attrs.kernel_size is None:
                raise ValueError("the weight has no type: give channels and kernel_size")
            o, i = (attrs.channels // groups, c) if transposed else (attrs.channels, c // groups)
            if not transposed and groups > 1 and groups == c and "I" in attrs.kernel_layout:
                o, i = (c, attrs.channels // groups)
            types[1] = TensorType(placed([0] * (dims + 2), kpos, (o, i, *attrs.kernel_size)), t.dtype)
        w = tensor(types, 1)
        if len(w.shape) != dims + 2:
            raise ValueError(f"the weight must have rank {dims + 2}")
        o, i, *ks = (w.shape[p] for p in kpos)
        if transposed:
            co, ci = o * groups, i
        elif groups > 1 and groups == c and o == c:
            co, ci = o * i, c  # depthwise: I is the channel multiplier
        else:
            co, ci = o, i * groups
        if not isinstance(c, Any) and ci != c:
            raise ValueError(f"the weight {w} (layout {attrs.kernel_layout}) is for {ci} input channels, the data has "
                             f"{c}")  # fmt: skip
        if attrs.channels is not None and attrs.channels != co:
            raise ValueError(f"channels={attrs.channels}, but the weight gives {co}")
        if attrs.kernel_size is not None and tuple(attrs.kernel_size) != tuple(ks):
            raise ValueError(f"kernel_size={tuple(attrs.kernel_size)}, but the weight has {tuple(ks)}")
        pads = [attrs.padding[k] + attrs.padding[k + dims] for k in range(dims)]
        if transposed:
            for k, s, d in zip(ks, attrs.strides, attrs.dilation):
                check_window(k, s, d)
            each = zip(sp, attrs.strides, attrs.dilation, ks, pads, attrs.output_padding)
            osp = [(x - 1) * s + d * (k - 1) + 1 - p + op for x, s, d, k, p, op in each]
        else:
            osp = [window_out(x, k, s, d, p) for x, k, s, d, p in zip(sp, ks, attrs.strides, attrs.dilation, pads)]
        at = layout_axes(attrs.out_layout or attrs.data_layout, "NC" + SPATIAL[dims])
        return TensorType(placed([0] * (dims + 2), at, (n, co, *osp)), product_type(t, w, attrs.out_dtype))

    return infer


# The kernel layout that goes with a data layout, where the user names none.
_KERNEL = {
    "nn.conv1d": {"NCW": "OIW", "NWC": "WIO"},
    "nn.conv2d": {"NCHW": "OIHW", "NHWC": "HWIO", "HWNC": "HWOI"},
    "nn.conv3d": {"NCDHW": "OIDHW", "NDHWC": "DHWIO"},
    "nn.conv2d_transpose": {"NCHW": "IOHW", "NHWC": "HWIO"},
}


def is_depthwise(e):
    """Whether a convolution has one group per channel of the data."""
    a, at = e.attrs, ((e.attrs.data_layout, "C"), (e.attrs.kernel_layout, "O"))
    channels, out = (layout_shape(x.checked_type.shape, parse_layout(v), [(c, 0)])[0] for x, (v, c) in zip(e.args, at))
    return a.groups > 1 and a.groups == channels == out


def layout_rule(e, has, want):
    """The layouts that the user wants for data and kernel, for example ["NHWC", "default"]."""
    if not want:
        return None
    name, a = e.op_name, e.attrs
    data, kernel = want[0], want[1] if len(want) > 1 else "default"
    if data == "default":
        raise ValueError(f"ConvertLayout: the data layout of {name} must be named, not 'default'")
    if sorted(data) != sorted(a.data_layout):
        raise ValueError(f"ConvertLayout: {name} cannot go from {a.data_layout} to {data}")
    if kernel == "default":
        if data not in _KERNEL[name]:
            raise ValueError(f"ConvertLayout: name the kernel layout for {name} in {data}")
        kernel = _KERNEL[name][data]
        if data == "NHWC" and name == "nn.conv2d" and is_depthwise(e):
            kernel = "HWOI"
    if sorted(kernel) != sorted(a.kernel_layout):
        raise ValueError(f"ConvertLayout: the kernel of {name} cannot go from {a.kernel_layout} to {kernel}")
    wants = [layout(a.data_layout, data), layout(a.kernel_layout, kernel)]
    attrs = {"data_layout": data, "kernel_layout": kernel, "out_layout": ""}
    return Plan(wants, layout(a.out_layout or a.data_layout, data), attrs)


def _conv(dims, name, inputs, window, layouts, out_dtype, **more):
    """The call. `window`: strides, padding, dilation, groups, channels, size of the kernel; `layouts`: of the data, the kernel and
    the result."""
    strides, padding, dilation, groups, channels, kernel_size = window
    return call(name, list(inputs), strides=per_axis(strides, dims, "strides"), padding=paddings(padding, dims),
                dilation=per_axis(dilation, dims, "dilation"), groups=int(groups),
                channels=None if channels is None else int(channels),
                kernel_size=None if kernel_size is None else per_axis(kernel_size, dims, "kernel_size"),
                **dict(zip(("data_layout", "kernel_layout", "out_layout"), layouts)), out_dtype=out_dtype, **more)  # fmt: skip


def _majors(layout):
    """A layout without blocks: NCHW of NCHW16c."""
    return "".join(axis for axis, block in parse_layout(layout) if not block)


def _any_layout(dims):
    """The type of a convolution whose layouts may have blocks."""
    rule, names = _conv_infer(dims), ("data_layout", "kernel_layout", "out_layout")

    def infer(attrs, types):
        layouts = [attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout]
        plain = [_majors(v) for v in layouts]
        if plain == layouts:
            return rule(attrs, types)
        (data, d), (kernel, k), (out, o) = ((parse_layout(v), parse_layout(p)) for v, p in zip(layouts, plain))
        unblocked = [t and TensorType(layout_shape(t.shape, has, want), t.dtype) for t, has, want in zip(types, (data, kernel), (d, k))]
        made = rule(attrs.with_(**dict(zip(names, plain))), unblocked)
        if types[1] is None:
            types[1] = TensorType(layout_shape(unblocked[1].shape, k, kernel), unblocked[1].dtype)
        return TensorType(layout_shape(made.shape, o, out), made.dtype)

    return infer


def _is_pointwise(call):
    """Whether a convolution in NHWC is the product of all pixels with a matrix."""
    a = call.attrs
    plain = a.groups == 1 and set(a.strides) == {1} and not any(a.padding)
    return (plain and (a.data_layout, a.kernel_layout) == ("NHWC", "HWIO")
            and call.args[1].checked_type.concrete_shape[:2] == (1, 1))  # fmt: skip


def _transformed_in_task(call, target):
    """Whether a call has Winograd's form, and the weight is not transformed ahead of time."""
    config = PassContext.current().config
    if target is None or (config.get("relay.winograd") == "measured" and transforms_weight(target)):
        return False  # graph passes chose
    return winograd_tile(call, target, config) is not None


def _blocked_loops(a, x, c):
    """Of data, weight or result in blocks of channels (NCHW16c): what AlterOpLayout makes for templates."""
    out_layout = a.out_layout or a.data_layout
    plain = _majors(a.data_layout), _majors(a.kernel_layout)
    x = [relayout(t, has, want) for t, has, want in zip(x, (a.data_layout, a.kernel_layout), plain)]
    window, dtype = (list(a.strides), list(a.padding), list(a.dilation)), c.checked_type.dtype
    if is_depthwise(c) and plain == ("NCHW", "OIHW"):
        out = topi.nn.depthwise_conv2d_nchw(*x, *window, dtype)
    else:
        out = topi.nn.conv(*x, *window, a.groups, *plain, dtype)
    return relayout(out, plain[0], out_layout)


def _conv2d_loops(a, x, c, target):
    if not (a.data_layout + a.kernel_layout + a.out_layout).isalpha():
        return _blocked_loops(a, x, c)
    data, weight = x
    strides, padding, dilation = list(a.strides), list(a.padding), list(a.dilation)
    dtype = c.checked_type.dtype
    if _is_pointwise(c):
        ci, co = weight.shape[2:]
        parts = parts_of_sum(c, ci, target)
        if parts > 1:
            pixels = topi.reshape(data, (topi.util.prod(data.shape[:3]), ci))
            product = topi.nn.matmul_in_parts(pixels, topi.reshape(weight, (ci, co)), parts)
            return topi.reshape(product, (*data.shape[:3], co))
    if _transformed_in_task(c, target):
        return topi.nn.conv2d_winograd_nhwc(data, weight, strides, padding, dilation, dtype)
    depthwise = is_depthwise(c)
    if depthwise and (a.data_layout, a.kernel_layout) == ("NCHW", "OIHW"):
        return topi.nn.depthwise_conv2d_nchw(data, weight, strides, padding, dilation, dtype)
    if depthwise and (a.data_layout, a.kernel_layout) == ("NHWC", "HWOI"):
        return topi.nn.depthwise_conv2d_nhwc(data, weight, strides, padding, dilation, out_dtype=dtype)
    return topi.nn.conv(data, weight, strides, padding, dilation, a.groups, a.data_layout, a.kernel_layout, dtype)


def _convolved(a, x, c):
    """What topi's convolutions of any number of axes are given."""
    window = list(a.strides), list(a.padding), list(a.dilation)
    return x[0], x[1], *window, a.groups, a.data_layout, a.kernel_layout, c.checked_type.dtype


def _conv_loops(a, x, c, target):
    if not (a.data_layout + a.kernel_layout + a.out_layout).isalpha():
        return _blocked_loops(a, x, c)
    return topi.nn.conv(*_convolved(a, x, c))


for _d in (1, 2, 3):
    register(f"nn.conv{_d}d", ANCHOR, _any_layout(_d), layout=layout_rule, colour=ALWAYS,
             loops=_conv2d_loops if _d == 2 else _conv_loops, ranked=True)  # fmt: skip


register("nn.contrib_conv2d_NCHWc", ANCHOR, _any_layout(2), colour=ALWAYS, loops=_conv2d_loops)


def _conv2d_transpose_loops(a, x, c, target):
    return topi.nn.conv2d_transpose(*_convolved(a, x, c), list(a.output_padding))


register("nn.conv2d_transpose", ANCHOR, _conv_infer(2, True), layout=layout_rule, colour=ALWAYS,
         loops=_conv2d_transpose_loops, ranked=True)  # fmt: skip


def _transpose_loops(a, x, c, target):
    return topi.nn.transposed.conv_transpose(*_convolved(a, x, c), list(a.output_padding))


for _d in (1, 3):
    register(f"nn.conv{_d}d_transpose", ANCHOR, _conv_infer(_d, True), colour=ALWAYS, loops=_transpose_loops, ranked=True)


def _direct(dims, one, none, data_layout, kernel_layout, doc):
    """The builder of a convolution of so many dimensions."""

    # fmt: off
    def conv(data, weight, strides=one, padding=none, dilation=one, groups=1, channels=None, kernel_size=None,
             data_layout=data_layout, kernel_layout=kernel_layout, out_layout="", out_dtype=""):
        window = (strides, padding, dilation, groups, channels, kernel_size)
        return _conv(dims, f"nn.conv{dims}d", (data, weight), window, (data_layout, kernel_layout, out_layout), out_dtype)

    # fmt: on
    return named(conv, f"conv{dims}d", doc)


conv1d = _direct(1, 1, 0, "NCW", "OIW", "1-D convolution.")
conv2d = _direct(2, (1, 1), (0, 0), "NCHW", "OIHW",
                 "2-D convolution. With `channels` and `kernel_size` an untyped weight variable gets its shape from here.")  # fmt: skip
conv3d = _direct(3, (1, 1, 1), (0, 0, 0), "NCDHW", "OIDHW", "3-D convolution.")


# fmt: off
def contrib_conv2d_nchwc(data, kernel, strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, channels=None, kernel_size=None,
                         data_layout="NCHW8c", kernel_layout="OIHW", out_layout="", out_dtype=""):
    """2-D convolution of data in blocks of channels, (n, c / 8, h, w, 8) for NCHW8c; the weight is in OIHW, and the result in
    the data's layout where `out_layout` names no other. AlterOpLayout makes it for templates on CPUs."""
    if kernel_layout != "OIHW":
        raise ValueError(f"kernel_layout is {kernel_layout!r}; contrib_conv2d_nchwc takes OIHW")
    window, layouts = (strides, padding, dilation, groups, channels, kernel_size), (data_layout, kernel_layout, out_layout or data_layout)
    return _conv(2, "nn.contrib_conv2d_NCHWc", (data, kernel), window, layouts, out_dtype)


def _transposed(dims, data_layout, kernel_layout):
    """The builder of a transposed convolution of so many dimensions."""
    one, none = (1,) * dims, (0,) * dims

    def conv(data, weight, strides=one, padding=none, dilation=one, channels=None, kernel_size=None, groups=1, data_layout=data_layout,
             kernel_layout=kernel_layout, out_layout="", output_padding=none, out_dtype=""):
        window, layouts = (strides, padding, dilation, groups, channels, kernel_size), (data_layout, kernel_layout, out_layout)
        more = per_axis(output_padding, dims, "output_padding")
        return _conv(dims, f"nn.conv{dims}d_transpose", (data, weight), window, layouts, out_dtype, output_padding=more)

    return named(conv, f"conv{dims}d_transpose", f"{dims}-D transposed convolution.")


conv1d_transpose, conv2d_transpose = _transposed(1, "NCW", "IOW"), _transposed(2, "NCHW", "IOHW")
conv3d_transpose = _transposed(3, "NCDHW", "IODHW")
# fmt: on
