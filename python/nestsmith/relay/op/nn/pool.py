"""Pools: over windows, to a given size, over whole maps."""

from .... import check, topi
from ....topi.util import named, placed
from ...ty import TensorType
from ..blocks import layout_shape, parse_layout
from ..registry import ANCHOR, FOLLOW, NEVER, call, register, tensor
from .util import SPATIAL, paddings, per_axis, window_layout, window_out

__all__ = ["pool_axes"]

_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_COLOUR = {"max": FOLLOW, "avg": NEVER}  # a mean of a whole map is a sum of many


def pool_axes(layout, dims):
    """Positions of the pooled axes in `layout`."""
    pos = [layout.find(c) for c in SPATIAL[dims]]
    if min(pos) < 0:
        raise ValueError(f"layout {layout!r} must contain {SPATIAL[dims]}")
    return pos


def _laid_out(attrs, shape):
    """`shape`, which is in ``layout``, in ``out_layout``."""
    out = attrs.get("out_layout") or attrs.layout
    return shape if out == attrs.layout else layout_shape(shape, parse_layout(attrs.layout), parse_layout(out))


def _pool_infer(dims):
    def infer(attrs, types):
        t = tensor(types, 0)
        if len(t.shape) != len(parse_layout(attrs.layout)):
            raise ValueError(f"layout {attrs.layout} needs rank {len(attrs.layout)}")
        shape = list(t.shape)
        for k, p in enumerate(pool_axes(attrs.layout, dims)):
            pads = attrs.padding[k] + attrs.padding[k + dims] + (attrs.strides[k] - 1 if attrs.ceil_mode else 0)
            shape[p] = window_out(shape[p], attrs.pool_size[k], attrs.strides[k], attrs.dilation[k], pads)
        return TensorType(_laid_out(attrs, shape), t.dtype)

    return infer


def _adaptive_infer(dims):
    def infer(attrs, types):
        t = tensor(types, 0)
        at, size = pool_axes(attrs.layout, dims), attrs.get("output_size")
        size = (1,) * dims if size is None else size
        new = [t.shape[p] if size[k] is None else size[k] for k, p in enumerate(at)]
        return TensorType(_laid_out(attrs, placed(t.shape, at, new)), t.dtype)

    return infer


_POOL = {1: topi.nn.pool1d, 2: topi.nn.pool2d, 3: topi.nn.pool3d}
_ADAPTIVE = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}


def _pool_loops(a, x, c, target):
    kind, dims = c.op_name[3:6], int(c.op_name[-2])
    return _POOL[dims](x[0], list(a.pool_size), list(a.strides), list(a.dilation), list(a.padding), kind, a.ceil_mode,
                       a.layout, a.get("count_include_pad", True))  # fmt: skip


def _adaptive_loops(a, x, c, target):
    dims, kind = int(c.op_name[-2]), "max" if "max" in c.op_name else "avg"
    shape = c.checked_type.concrete_shape
    size = [shape[p] for p in pool_axes(a.get("out_layout") or a.layout, dims)]
    return _ADAPTIVE[dims](x[0], size, kind, a.layout)


def _make_pool(kind, dims):
    name = f"nn.{kind}_pool{dims}d"
    register(name, ANCHOR, _pool_infer(dims), layout=window_layout, colour=FOLLOW, loops=_pool_loops, ranked=True)

    def build(data, pool_size=(1,) * dims, strides=(1,) * dims, dilation=(1,) * dims, padding=(0,) * dims,
              layout=_LAYOUT[dims], out_layout="", ceil_mode=False, count_include_pad=False):  # fmt: skip
        more = {"count_include_pad": bool(count_include_pad)} if kind == "avg" else {}
        return call(name, [data], pool_size=per_axis(pool_size, dims, "pool_size"),
                    strides=per_axis(strides, dims, "strides"), dilation=per_axis(dilation, dims, "dilation"),
                    padding=paddings(padding, dims), layout=layout, out_layout=out_layout, ceil_mode=bool(ceil_mode),
                    **more)  # fmt: skip

    return named(build, f"{kind}_pool{dims}d",
                 f"{'Largest element' if kind == 'max' else 'Mean'} of each window of a {dims}-D map.")  # fmt: skip


def _make_adaptive(kind, dims):
    name = f"nn.adaptive_{kind}_pool{dims}d"
    register(name, ANCHOR, _adaptive_infer(dims), layout=window_layout, colour=_COLOUR[kind], loops=_adaptive_loops,
             ranked=True)  # fmt: skip

    def build(data, output_size=None, layout=_LAYOUT[dims], out_layout=""):
        size = 1 if output_size is None else output_size
        size = (size,) * dims if isinstance(size, int) else size
        size = tuple(None if n is None else check.integer("output_size", n, 1) for n in size)  # None: as it is
        return call(name, [data], output_size=size, layout=layout, out_layout=out_layout)

    return named(build, f"adaptive_{kind}_pool{dims}d",
                 f"Pools a {dims}-D map to `output_size`: window i of m covers floor(i*n/m) to ceil((i+1)*n/m).")  # fmt: skip


def _make_global(kind, dims):
    name = f"nn.global_{kind}_pool{dims}d"
    register(name, ANCHOR, _adaptive_infer(dims), layout=window_layout, colour=_COLOUR[kind], loops=_adaptive_loops, ranked=True)

    def build(data, layout=_LAYOUT[dims], out_layout=""):
        return call(name, [data], layout=layout, out_layout=out_layout)

    return named(build, f"global_{kind}_pool{dims}d",
                 f"{'Maximum' if kind == 'max' else 'Mean'} over the spatial axes, which stay with extent 1.")  # fmt: skip


for _d in (1, 2, 3):
    for _k in ("max", "avg"):
        for _name, _make in (("", _make_pool), ("adaptive_", _make_adaptive), ("global_", _make_global)):
            globals()[f"{_name}{_k}_pool{_d}d"] = _make(_k, _d)
            __all__.append(f"{_name}{_k}_pool{_d}d")
