"""Whole networks, through PyTorch's exported programs and both of its ONNX exporters, against PyTorch with onnxruntime beside it."""

import pytest
from whole_networks import FULL, FULL_16, LIMITS, SIXTEEN, SMALL, WAYS, errors


def judge(found, ways):
    assert tuple(found) == tuple(ways)
    assert all(e is None or e < LIMITS[way] for way, both in found.items() for e in both), found


@pytest.mark.parametrize("name", SMALL)
def test_small(name):
    judge(errors(SMALL[name]), WAYS)


@pytest.mark.parametrize("name", SMALL)
def test_small_in_16_bits(name):
    judge(errors(SMALL[name], SIXTEEN), SIXTEEN)


@pytest.mark.full
@pytest.mark.parametrize("name", FULL)
def test_full(name):
    judge(errors(FULL[name]), WAYS)


@pytest.mark.full
@pytest.mark.parametrize("name", FULL_16)
def test_full_in_16_bits(name):
    judge(errors(FULL[name], SIXTEEN), SIXTEEN)
