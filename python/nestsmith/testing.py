"""What scripts check their results with."""

from __future__ import annotations

import numpy as np

__all__ = ["assert_allclose"]


def assert_allclose(actual, desired, rtol=1e-7, atol=1e-7):
    """AssertionError unless two arrays have one shape and differ by no more than ``atol + rtol * |desired|``.

    Parameters
    ----------
    actual, desired : array, nd.NDArray or number
    rtol, atol : float
        Unlike NumPy's function, `atol` is not 0 if it is not given.
    """
    a, d = (np.asarray(x.numpy() if hasattr(x, "numpy") else x) for x in (actual, desired))
    np.testing.assert_allclose(a.shape, d.shape, err_msg="shapes")
    np.testing.assert_allclose(a, d, rtol=rtol, atol=atol, verbose=True)
