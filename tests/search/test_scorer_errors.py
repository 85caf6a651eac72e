"""A cost model in Python that fails must end the search with its own message."""

import pytest

from nestsmith import _core, te

CPU = _core.Target("llvm", (1, 64, 64, 0, 0, 0, 0, 0))


def broken(states):
    raise KeyError("no such feature")


def policy(threads):
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), "k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    params = {"evolutionary_search_population": 32, "sample_init_min_population": 4}
    return _core.Policy(_core.ComputeDAG([a, b, c]), CPU, params, 1, threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_message_of_the_model_arrives(threads):
    p = policy(threads)
    p.set_scorer(broken)
    with pytest.raises(RuntimeError, match="cost model.*no such feature"):
        p.round(4)
    p.set_scorer(None)
    assert len(p.round(4)) == 4


def test_a_searching_policy_is_not_changed():
    p = policy(1)
    seen = []

    def meddle(states):
        try:
            p.set_scorer(None)
        except RuntimeError as e:
            seen.append(str(e))
        return [1.0] * len(states)

    p.set_scorer(meddle)
    p.round(2)
    assert seen and "searching" in seen[0]
