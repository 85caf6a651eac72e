"""Whole networks, through PyTorch's exported programs and both of its ONNX exporters, against PyTorch with onnxruntime beside it."""

import pytest
from whole_networks import FULL, SMALL, WAYS, errors

LIMIT = 1e-5  # of the largest output


def judge(found):
    assert len(found) == len(WAYS)
    assert all(ours < LIMIT and (theirs is None or theirs < LIMIT) for ours, theirs in found.values()), found


@pytest.mark.parametrize("name", SMALL)
def test_small(name):
    judge(errors(SMALL[name]))


@pytest.mark.full
@pytest.mark.parametrize("name", FULL)
def test_full(name):
    judge(errors(FULL[name]))
