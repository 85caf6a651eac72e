"""A change of layout before a convolution: inside its kernel, or one of its own before it; both are sketches of one task."""

import numpy as np
import pytest
from tensor_core_cases import by_lanes, defined, policy, unwritten

from helpers import full
from nestsmith import _core, te, topi
from nestsmith.states import core_state


def layer(size=12, channels=3, kernel=3, stride=2, axes=(0, 2, 3, 1)):
    """A convolution in NHWC of an image in NCHW."""
    shape = [0] * 4
    for place, extent in zip(axes, (2, size, size, channels)):
        shape[place] = extent
    x, w, b = te.placeholder(shape, name="X"), te.placeholder((kernel, kernel, channels, 24), name="W"), te.placeholder((1, 1, 1, 24), name="B")
    data = topi.transpose(x, axes) if axes != (0, 1, 2, 3) else x
    return [x, w, b, topi.nn.relu(topi.add(topi.nn.conv2d_nhwc(data, w, stride, kernel // 2, 1), b))]


def kernels(state):
    return _core.candidate_source(core_state(state), _core.Target("cuda", sm=90), 0)[0].count("__global__ void")


def products(tensors, **how):
    return [s for s in policy(tensors, **how).generate_sketches() if "MM" in [x[0] for x in s.transform_steps]]


def test_both_are_sketches():
    assert len(products(layer())) == 2 and len(products(layer(axes=(0, 1, 2, 3)))) == 1
    assert len(products(layer(), lane_products=0)) == 0 and len(products(layer(), math="tf32")) == 4  # of warps and of warpgroups


def test_products_without_windows_take_what_they_read_as_it_is():
    a, b = te.placeholder((40, 33), name="A"), te.placeholder((48, 40), name="B")
    assert len(products([a, b, topi.nn.dense(topi.transpose(a, (1, 0)), b)])) == 1


def first_of_both(states, each):
    """So many states of one kernel and so many of two; a program is written for none that is not looked at."""
    found = {1: [], 2: []}
    for s in states:
        found[kernels(s)].append(s)
        if min(map(len, found.values())) >= each:
            break
    return {count: of[:each] for count, of in found.items()}


@pytest.mark.parametrize(
    ("size", "channels", "kernel", "stride"),
    [(8, 3, 3, 2), full(12, 3, 3, 2), full(11, 3, 7, 2), full(9, 5, 5, 1)],
)
def test_both_are_right(size, channels, kernel, stride):
    tensors = layer(size, channels, kernel, stride)
    p, want, seen = policy(tensors), defined(tensors), set()
    drawn = [s for s in p.sample_initial_population() if by_lanes(s)]
    bred = [s for s in p.evolutionary_search(drawn, 64) if by_lanes(s)]
    first, then = first_of_both(drawn, 3), first_of_both(bred, 2)
    for count in (1, 2):
        chosen = first[count] + then[count]
        seen |= {kernels(s) for s in chosen}
        for s in chosen:
            data = [*want[:-1], unwritten(want[-1])]
            report = _core.interp(core_state(s), _core.Target("cuda", sm=90, overlap=2), data, stage="program", constant=2)
            assert report["findings"] == []
            np.testing.assert_array_equal(data[-1], want[-1])
    assert seen == {1, 2}
