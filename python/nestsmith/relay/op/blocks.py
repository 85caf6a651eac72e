"""Layouts, blocked ones too: capital letters are axes, ``16c`` is a block of axis C."""

import re

import numpy as np

from ... import te, topi
from ..ty import TensorType
from .registry import INJECTIVE, call, register, tensor
from .transform import move_layout

__all__ = ["layout_transform"]


def parse_layout(text):
    """A layout such as ``NCHW16c`` as a list of (axis letter, block or 0)."""
    parts = re.findall(r"([A-Z])|(\d+)([a-z])", text)
    out = [(a, 0) if a else (c.upper(), int(n)) for a, n, c in parts]
    if "".join(a if not b else f"{b}{a.lower()}" for a, b in out) != text:
        raise ValueError(f"layout {text!r} is not understood; examples: NCHW, NHWC, NCHW16c")
    return out


def layout_shape(shape, src, dst):
    """The shape in layout `dst` of a tensor that has `shape` in layout `src`."""
    full = {}
    for (a, b), d in zip(src, shape):
        full[a] = full.get(a, 1) * d if b or a in full else d
    blocks = {a: b for a, b in dst if b}
    out = []
    for a, b in dst:
        if a not in full:
            raise ValueError(f"axis {a} is not in the source layout")
        if not b and a in blocks and full[a] % blocks[a]:
            raise ValueError(f"axis {a} of extent {full[a]} has no blocks of {blocks[a]}")
        out.append(b or full[a] // blocks.get(a, 1))
    return tuple(out)


def _layout_infer(attrs, types):
    t = tensor(types, 0)
    return TensorType(layout_shape(t.shape, parse_layout(attrs.src_layout), parse_layout(attrs.dst_layout)), t.dtype)


def _ev_layout(attrs, x):
    src, dst = parse_layout(attrs.src_layout), parse_layout(attrs.dst_layout)
    order = sorted({a for a, _ in src})
    major = {a: i for i, (a, b) in enumerate(src) if not b}
    minor = {a: i for i, (a, b) in enumerate(src) if b}
    perm, shape = [], []
    for a in order:
        perm += [major[a]] + ([minor[a]] if a in minor else [])
        shape.append(x.shape[major[a]] * (x.shape[minor[a]] if a in minor else 1))
    x = x.transpose(perm).reshape(shape)
    blocks = {a: b for a, b in dst if b}
    split_shape, pos, k = [], {}, 0
    for a, d in zip(order, shape):
        if a in blocks:
            split_shape += [d // blocks[a], blocks[a]]
            pos[a, 0], pos[a, 1] = k, k + 1
            k += 2
        else:
            split_shape.append(d)
            pos[a, 0] = k
            k += 1
    return np.ascontiguousarray(x.reshape(split_shape).transpose([pos[a, 1 if b else 0] for a, b in dst]))


def relayout(x, old, new):
    if old == new:
        return x
    src, dst = parse_layout(old), parse_layout(new)
    shape = layout_shape(x.shape, src, dst)
    blocks_out, blocks_in = {k: b for k, b in dst if b}, {k: b for k, b in src if b}

    def f(*ax):
        major = {k: v for (k, b), v in zip(dst, ax) if not b}
        minor = {k: v for (k, b), v in zip(dst, ax) if b}
        full = {k: major[k] * blocks_out[k] + minor[k] if k in minor else major[k] for k in major}
        idx = []
        for k, b in src:
            v = full[k]
            idx.append(te.floormod(v, b) if b else te.floordiv(v, blocks_in[k]) if k in blocks_in else v)
        return x(*idx)

    return topi.util.injective(shape, f, "T_layout_trans")


register("layout_transform", INJECTIVE, _layout_infer, _ev_layout, layout=move_layout,
         loops=lambda a, x, c, t: relayout(x[0], a.src_layout, a.dst_layout), ranked=True)  # fmt: skip


def layout_transform(data, src_layout, dst_layout):
    """Reorders (and blocks) the axes, e.g. from NCHW to NHWC or NCHW16c."""
    return call("layout_transform", [data], src_layout=src_layout, dst_layout=dst_layout)
