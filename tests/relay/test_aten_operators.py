"""PyTorch's own samples of its operators, imported and computed; what is not known is refused by its name."""

import pytest

pytest.importorskip("expecttest", reason="PyTorch's database of samples needs it")

from aten_operators import operators, run  # noqa: E402

CHOSEN = (
    "add", "addmv", "argmax", "atan2", "bitwise_left_shift", "bitwise_right_shift", "bucketize", "copysign", "cummax", "cumprod", "diagonal",
    "diagonal_scatter", "einsum", "fmin", "gather", "grid_sampler_2d", "index_put", "kthvalue", "logcumsumexp", "logsumexp", "median",
    "nn.functional.conv2d", "round.decimals_3", "sign", "squeeze.multiple", "unfold", "var",
)  # fmt: skip


@pytest.mark.some(4)
@pytest.mark.parametrize("name", CHOSEN)
def test_chosen(name):
    found = run(name, most=1, kinds=("float32", "int64"))[1]
    assert found and set(found) == {"ok"}, found


@pytest.mark.full
@pytest.mark.long
def test_compiled():
    for name in CHOSEN:
        found = set(run(name, most=2, build=True)[1])
        shapes = {v for v in found if v.startswith("refused") and "decides how many elements there are" in v}  # of newer releases' samples
        assert found - shapes == {"ok"}, name


@pytest.mark.full
@pytest.mark.long
def test_nothing_is_wrong():
    rows = dict(run(name, most=2) for name in operators())
    wrong = {n: v for n, v in rows.items() if any(x.startswith("wrong") for x in v)}
    assert not wrong
    assert sum(bool(v) and set(v) == {"ok"} for v in rows.values()) >= 300
