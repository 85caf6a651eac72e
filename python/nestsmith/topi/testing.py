"""What scripts compare operators with: NumPy's results. Imported by name only, as in TVM."""

import numpy as np

from .util import get_pads, tuple_of

__all__ = ["conv2d_nchw_python"]


def conv2d_nchw_python(a_np, w_np, stride, padding, groups=1):
    """The convolution of two arrays.

    Parameters
    ----------
    a_np : array [N, C, H, W]
    w_np : array [O, C / groups, KH, KW]
    stride : int or (int, int)
    padding : "SAME", "VALID", int, (height, width) or (top, left, bottom, right)
    groups : int

    Returns
    -------
    array [N, O, OH, OW]
        Of the arrays' common type.

    Raises
    ------
    ValueError
        If the shapes do not belong together, or `padding` is something else.
    """
    if a_np.ndim != 4 or w_np.ndim != 4 or a_np.shape[1] != groups * w_np.shape[1] or w_np.shape[0] % groups:
        raise ValueError(f"a_np of shape {a_np.shape} and w_np of shape {w_np.shape} are not [N, C, H, W] and [O, C / "
                         f"groups, KH, KW] with groups={groups}")  # fmt: skip
    (down, right), window = tuple_of(stride, 2, "stride"), w_np.shape[2:]
    padded = np.pad(a_np, [(0, 0), (0, 0), *zip(*get_pads(padding, window))])
    if any(size < k for size, k in zip(padded.shape[2:], window)):
        raise ValueError(f"the window {window} of w_np is larger than the padded image {padded.shape[2:]}")
    seen = np.lib.stride_tricks.sliding_window_view(padded, window, (2, 3))[:, :, ::down, ::right]  # [N, C, OH, OW, KH, KW]
    parts = zip(np.split(seen, groups, 1), np.split(w_np, groups))
    return np.concatenate([np.tensordot(x, w, [(1, 4, 5), (1, 2, 3)]) for x, w in parts], 3).transpose(0, 3, 1, 2)
