"""Sums of products over named axes, against PyTorch's."""

import numpy as np
import pytest
import torch

from nestsmith.relay.frontend.common import now
from nestsmith.relay.frontend.einsum import einsum
from nestsmith.relay.frontend.values import array

EQUATIONS = {
    "ij,jk": [(3, 4), (4, 5)],
    "ij,jk->ik": [(3, 4), (1, 5)],
    "ij,ij->ij": [(3, 1), (3, 4)],
    "...ij,...jk->...ik": [(2, 1, 3, 4), (7, 4, 5)],
    "...i->...": [(2, 3, 4)],
    "i...,i->...": [(2, 3, 4), (2,)],
    "ii->i": [(4, 4)],
    "ii": [(4, 4)],
    "iij->j": [(3, 3, 2)],
    "iji,j->i": [(3, 2, 3), (2,)],
    "i,j->ji": [(3,), (4,)],
    "ab,bc,cd->ad": [(2, 3), (3, 4), (4, 5)],
    "a,ab,b->": [(2,), (2, 3), (3,)],
    "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "ij->ji": [(3, 4)],
    "ba": [(3, 4)],
    "ij -> ": [(3, 4)],
    "i,i": [(3,), (3,)],
    "bijk,bjk->bi": [(2, 3, 4, 5), (2, 4, 5)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_equations(equation):
    rng = np.random.default_rng(0)
    given = [rng.normal(size=s).astype("float32") for s in EQUATIONS[equation]]
    want = torch.einsum(equation, *map(torch.from_numpy, given)).numpy()
    got = now(einsum(equation, [array(x) for x in given])).data
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes", "words"),
    [
        ("ij,jk->ik", [(3, 4)], "2 operands, 1 are given"),
        ("ij->i", [(3, 4, 5)], "operand 0 has 3 axes"),
        ("i,i->i", [(3,), (4,)], "3 elements and 4"),
        ("ij->ik", [(3, 4)], "names k"),
        ("ij->ii", [(3, 4)], "an axis twice"),
    ],
)
def test_mistakes(equation, shapes, words):
    with pytest.raises(ValueError, match=words):
        einsum(equation, [array(np.zeros(s, "float32")) for s in shapes])
