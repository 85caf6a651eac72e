"""Whole networks, through PyTorch's exported programs and both of its ONNX exporters, against PyTorch with onnxruntime beside it."""

import pytest
from whole_networks import FULL, FULL_16, LIMITS, SIXTEEN, SMALL, WAYS, errors

from helpers import in_turn


def judge(found, ways):
    assert tuple(found) == tuple(ways)
    assert all(e is None or e < LIMITS[way] for way, both in found.items() for e in both), found


@pytest.mark.some(3)
@pytest.mark.parametrize("name,way", in_turn(list(SMALL), WAYS))
def test_small(name, way):
    judge(errors(SMALL[name], (way,)), (way,))


@pytest.mark.some(2)
@pytest.mark.parametrize("name,way", in_turn(list(SMALL), SIXTEEN))
def test_small_in_16_bits(name, way):
    judge(errors(SMALL[name], (way,)), (way,))


@pytest.mark.full
@pytest.mark.parametrize("name", FULL)
def test_full(name):
    judge(errors(FULL[name]), WAYS)


@pytest.mark.full
@pytest.mark.parametrize("name", FULL_16)
def test_full_in_16_bits(name):
    judge(errors(FULL[name], SIXTEEN), SIXTEEN)
