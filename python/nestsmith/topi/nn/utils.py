"""Paddings and strides of windows, by TVM's names."""

from ..util import as_const_int, get_const_int, get_const_tuple, get_pad_tuple, get_pads, tuple_of

__all__ = ["get_const_int", "get_const_tuple", "get_pad_tuple", "get_pad_tuple1d", "get_pad_tuple3d",
           "get_pad_tuple_generic", "infer_pad", "infer_pad3d", "infer_stride"]  # fmt: skip


def get_pad_tuple_generic(padding, kernel):
    """(amounts before, amounts after) of a window of any rank, as lists."""
    before, after = get_pads(padding, tuple(as_const_int(k) for k in kernel))
    return [*before, *after]


def get_pad_tuple1d(padding, kernel):
    """(left, right) of a window of one dimension."""
    (before,), (after,) = get_pads(padding, tuple_of(kernel, 1, "kernel"))
    return before, after


def get_pad_tuple3d(padding, kernel):
    """(front, top, left, back, bottom, right) of a window of three dimensions."""
    before, after = get_pads(padding, tuple(as_const_int(k) for k in kernel))
    return (*before, *after)


def infer_pad(data, data_pad):
    """Half of what ``data_pad`` [N, C, H, W] has more than ``data`` in H and W; (0, 0) if it is None."""
    if data_pad is None:
        return 0, 0
    return tuple((as_const_int(b) - as_const_int(a)) // 2 for a, b in zip(data.shape[2:4], data_pad.shape[2:4]))


def infer_pad3d(data, data_pad, layout):
    """Half of what ``data_pad`` has more than ``data`` in D, H and W; (0, 0, 0) if it is None."""
    if data_pad is None:
        return 0, 0, 0
    axes = {"NDHWC": (1, 2, 3), "NCDHW": (2, 3, 4)}[layout]
    return tuple(as_const_int(data_pad.shape[a]) - as_const_int(data.shape[a]) for a in axes)


def infer_stride(data, kernel, out):
    """The strides of a convolution from the shapes of what it reads and gives, [N, C, H, W]."""
    return tuple(
        (as_const_int(i) - as_const_int(k)) // max(as_const_int(o) - 1, 1) + (as_const_int(o) == 1)
        for i, k, o in zip(data.shape[2:4], kernel.shape[2:4], out.shape[2:4])
    )
