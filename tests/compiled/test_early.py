"""Which programs of a network's kernels are kept, by what a run takes: the search for them, over made-up times."""

import numpy as np
import pytest

from nestsmith.compiled.early import MARGIN, _Network


class Imagined(_Network):
    """A network whose runs take the sum of what its kernels take, and `between` of pairs of neighbours."""

    def __init__(self, takes, between=None, early=1):
        self.versions = {f"k{i}": list(range(len(t))) for i, t in enumerate(takes)}
        self.takes, self.between, self.can, self.runs = takes, between or {}, early, 0

    def early(self, choice):
        return self.can

    def seconds(self, choice):
        self.runs += 1
        chosen = list(choice.values())
        pairs = sum(self.between.get((i, a, b), 0) for i, (a, b) in enumerate(zip(chosen, chosen[1:])))
        return sum(t[k] for t, k in zip(self.takes, chosen)) + pairs


@pytest.mark.parametrize("seed", range(20))
def test_each_kernel_gets_its_fastest_program(seed):
    rng = np.random.default_rng(seed)
    takes = [list(rng.integers(5, 15, rng.integers(1, 4))) for _ in range(30)]
    network = Imagined(takes)
    got, plain = network.seconds(network.best()), sum(t[0] for t in takes)
    least = sum(map(min, takes))
    assert got <= max(least * 1.02, plain if least > MARGIN * plain else 0)


def test_what_is_hardly_faster_is_not_taken():
    assert set(Imagined([[1000, 999, 1001]] * 10).best().values()) == {0}
    assert set(Imagined([[1000, 980, 1001]] * 10).best().values()) == {1}


def test_where_launches_are_plain_ones_nothing_is_tried():
    network = Imagined([[10, 1, 1]] * 5, early=0)
    assert set(network.best().values()) == {0} and network.runs == 0
    assert set(Imagined([[10], [20]]).best().values()) == {0}


def test_a_second_round_where_kernels_hinder_each_other():
    """k0 gains by its program 1 only once k1 has its own."""
    network = Imagined([[100, 95], [100, 80]], {(0, 1, 0): 50, (0, 0, 1): 0, (0, 1, 1): 0})
    network.all_alike = lambda k: {"k0": 0, "k1": 0}
    assert list(network.best().values()) == [1, 1]


def test_it_begins_with_what_is_best_elsewhere():
    """All alike is slow, single changes do not help, and what is given does."""
    n = 6
    hinder = {(i, a, b): 40 for i in range(n - 1) for a in range(2) for b in range(2) if a != b and (i + a) % 2}
    takes = [[100, 70] if i % 2 else [100, 130] for i in range(n)]
    given = {f"k{i}": i % 2 for i in range(n)}
    assert Imagined(takes, hinder).best([given]) == given
