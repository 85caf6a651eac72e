"""nestsmith.testing: what scripts written for TVM check their results with."""

import numpy as np
import pytest

import nestsmith


def test_assert_allclose():
    x = np.arange(6, dtype="float32").reshape(2, 3)
    nestsmith.testing.assert_allclose(nestsmith.nd.array(x), x + 1e-8)
    nestsmith.testing.assert_allclose(x, x * 1.01, rtol=0.02)
    with pytest.raises(AssertionError, match="Mismatched elements: 5 / 6"):
        nestsmith.testing.assert_allclose(x * 1.01, x)
    with pytest.raises(AssertionError, match="shapes"):
        nestsmith.testing.assert_allclose(x, x[:1])  # NumPy's own would broadcast
