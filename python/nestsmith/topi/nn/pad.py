"""Padding as convolutions do it, and by mirroring."""

from ... import te, tir
from ..transform import mirrored
from ..util import tuple_of


def pad(data, pad_before, pad_after=None, pad_value=0.0, name="PadInput"):
    """``data`` surrounded by a value.

    A dimension with any padding is tested on both sides. The stage exists even when nothing is padded, as a copy.
    """
    n = len(data.shape)
    before = tuple_of(pad_before, n, "pad_before")
    after = before if pad_after is None else tuple_of(pad_after, n, "pad_after")
    value = pad_value if isinstance(pad_value, tir.Expr) else tir.const(pad_value, data.dtype)

    def f(*ix):
        idx, cond = [], []
        for i, s, b, a in zip(ix, data.shape, before, after):
            if b == 0 and a == 0:
                idx.append(i)
                continue
            idx.append(i - b)
            cond += [i >= b, i < s + b]
        return te.if_then_else(te.all(*cond), data(*idx), value) if cond else data(*idx)

    return te.compute([s + b + a for s, b, a in zip(data.shape, before, after)], f, name=name, tag="injective,pad")


def mirror_pad(data, pad_before, pad_after=None, mode="SYMMETRIC", name="MirrorPadInput"):
    """``data`` surrounded by itself in a mirror: ``"SYMMETRIC"`` repeats the last element, ``"REFLECT"`` does not."""
    n = len(data.shape)
    before = tuple_of(pad_before, n, "pad_before")
    after = before if pad_after is None else tuple_of(pad_after, n, "pad_after")
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise ValueError(f'mirror_pad: mode is "SYMMETRIC" or "REFLECT", not {mode!r}')
    return mirrored(data, before, after, mode.lower(), name)
