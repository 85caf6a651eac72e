"""Which programs of a network's kernels are kept, by what a run takes: the search for them, over made-up times."""

import numpy as np
import pytest

from nestsmith.compiled.early import MARGIN, _Network, _with_chains
from nestsmith.relay import merging


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


class WithChains(_Network):
    """A network of 10 kernels that take 100 each, of which chains are merged: {chain: places}, each place gains what `gain` says of its
    chain. What is merged has two programs, of which the second gains `early` more."""

    def __init__(self, found, gain, early=0):
        self.found, self.gain, self.more = found, gain, early
        self.versions = {"k": [0], **{chain: [0, 1] for chain in found}}

    def seconds(self, choice):
        assert set(choice) == set(self.versions)
        return 1000 - sum(len(at) * (self.gain[c] + self.more * choice[c]) for c, at in self.found.items())


def chains_of(monkeypatch, gain, places, cannot=(), early=0):
    """What is taken: ({chain: places}, choice)."""
    monkeypatch.setattr(merging, "candidates", lambda lib: places)
    monkeypatch.setattr(merging, "programs", lambda found, lib: {c: c for c in found if c not in cannot})
    monkeypatch.setattr(merging, "merged", lambda lib, found, made: {c: made[c] and found[c] for c in found})
    tried = []

    def load(found):
        nodes = [k for at in found.values() for calls in at for k in calls]
        assert len(nodes) == len(set(nodes)), "a node is merged twice"
        tried.append(set(found))
        if "refused" in found:
            raise RuntimeError("a kernel cannot be launched")
        return WithChains(found, gain, early)

    lib, network, choice = _with_chains({}, load({}), {"k": 0}, load)
    assert network.found == lib and not any(set(cannot) & t for t in tried)
    return lib, choice


def test_the_chains_that_help_most_are_merged(monkeypatch):
    places = {"short": [(1, 2), (5, 6)], "long": [(1, 2, 3)], "slow": [(8, 9)], "broken": [(10, 11)], "rest": [(5, 6), (12, 13)]}
    gain = {"short": 10, "long": 30, "slow": -5, "broken": 90, "rest": 9}
    found, choice = chains_of(monkeypatch, gain, places, ["broken"])
    assert found == {"long": [(1, 2, 3)], "short": [(5, 6)], "rest": [(12, 13)]} and choice == {"k": 0, "long": 0, "short": 0, "rest": 0}
    places["refused"], gain["refused"] = [(7, 8)], 99
    assert set(chains_of(monkeypatch, gain, places, ["broken"])[0]) == {"long", "short", "rest"}  # one that cannot run spoils no other
    gain["short"] = 40  # the long one comes too late
    assert set(chains_of(monkeypatch, gain, places, ["broken"])[0]) == {"short", "rest"}


def test_merged_kernels_begin_early_where_that_helps(monkeypatch):
    found, choice = chains_of(monkeypatch, {"a": 20}, {"a": [(1, 2)]}, early=10)
    assert found and choice == {"k": 0, "a": 1}
    assert chains_of(monkeypatch, {"a": 20}, {"a": [(1, 2)]}, early=-10)[1] == {"k": 0, "a": 0}


def test_chains_that_hardly_help_are_not_merged(monkeypatch):
    assert chains_of(monkeypatch, {"a": 1}, {"a": [(1, 2)]}) == ({}, {"k": 0})
    assert chains_of(monkeypatch, {"a": 4}, {"a": [(1, 2)]}) == ({}, {"k": 0})  # it does, but the network is no faster to speak of
    assert chains_of(monkeypatch, {"a": 4, "b": 4}, {"a": [(1, 2)], "b": [(3, 4)]})[0] == {"a": [(1, 2)], "b": [(3, 4)]}
    assert chains_of(monkeypatch, {}, {}) == ({}, {"k": 0})
