"""The contract of float32x3 on a GPU, on which what tensor cores do between two roundings is not documented: at most twice the error of
plain float32 on the same data."""

import pytest
import three_terms

import nestsmith as ns

pytestmark = pytest.mark.skipif(not ns.cuda(0).exist, reason="no CUDA device: " + ns.cuda(0).why_not)


@pytest.mark.parametrize("k", three_terms.SUMS)
@pytest.mark.parametrize("kind", ["warps", "sums in parts on warps", "warpgroups"])
def test_errors_are_at_most_twice_those_of_float32(kind, k):
    if kind == "warpgroups" and three_terms.sm() != 90:
        pytest.skip("no warpgroups before compute capability 9.0, and other ones after it")
    largest, mean = three_terms.plain(k)
    found = [r for r in three_terms.rows(k) if r.kind == kind]
    assert len(found) == three_terms.OF_A_KIND and all("float32x3" in r.schedule for r in found)
    for r in found:
        assert 0 < r.errors[0] <= 2 * largest and 0 < r.errors[1] <= 2 * mean, (r, largest, mean)
