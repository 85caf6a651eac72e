"""Model T on real timings: tests/data/pilot_cpu_matmul.bin.gz holds 4,800 measured CPU products with features."""

import gzip
import pathlib
import struct

import numpy as np
import pytest

from helpers import full
from nestsmith import _core

DATA = pathlib.Path(__file__).parent.parent / "data" / "pilot_cpu_matmul.bin.gz"


def load_pilot():
    raw = gzip.open(DATA).read()
    assert raw[:4] == b"PLT1"
    _, n, entries = struct.unpack_from("<III", raw, 4)
    at, rows, first, task, cost = 16, [], [0], [], []
    for _ in range(n):
        t, r, seconds = struct.unpack_from("<iif", raw, at)
        at += 12
        rows.append(np.frombuffer(raw, "<f4", r * entries, at).reshape(r, entries))
        at += 4 * r * entries
        first.append(first[-1] + r)
        task.append(t)
        cost.append(seconds)
    return np.concatenate(rows), np.array(first, np.int32), np.array(task, np.int32), np.array(cost)


@pytest.fixture(scope="module")
def pilot():
    return load_pilot()


def pick(data, states):
    rows, first, task, cost = data
    parts = [rows[first[i] : first[i + 1]] for i in states]
    sizes = np.cumsum([0] + [len(p) for p in parts]).astype(np.int32)
    return np.concatenate(parts), sizes, task[states], cost[states]


def metrics(forest, part):
    return _core.model_metrics(*part, forest.score(part[0], part[1]))


@pytest.mark.parametrize("folds,known", [(1, 0.874), full(4, 0.861)])
def test_hold_out_by_task(pilot, folds, known):
    task = pilot[2]
    got = []
    for fold in range(folds):
        held = np.isin(task, [2 * fold, 2 * fold + 1])
        forest = _core.Forest.train(*pick(pilot, np.flatnonzero(~held)), threads=2)
        got.append(metrics(forest, pick(pilot, np.flatnonzero(held))))
    pairwise = np.mean([g["pairwise"] for g in got])
    peak = np.mean([g["a_peak32"] for g in got])
    print(f"hold-out by task: pairwise {pairwise:.3f} a-peak@32 {peak:.3f}")
    assert abs(pairwise - known) <= 0.01 and peak >= 0.87


def test_mixed_split(pilot):
    rng = np.random.default_rng(1)
    got = []
    for _ in range(3):
        order = rng.permutation(len(pilot[2]))
        forest = _core.Forest.train(*pick(pilot, order[:512]))
        got.append(metrics(forest, pick(pilot, order[512:1512]))["pairwise"])
    assert np.mean(got) >= 0.83


def test_same_bytes_for_every_thread_count(pilot, tmp_path):
    part = pick(pilot, np.arange(0, 4800, 6))
    for threads in (1, 2, 3):
        _core.Forest.train(*part, trees=20, seed=7, threads=threads).save(str(tmp_path / f"{threads}"))
    a, b, c = ((tmp_path / f"{n}").read_bytes() for n in (1, 2, 3))
    assert a == b == c


def test_states_of_many_rows_do_not_diverge():
    rng = np.random.default_rng(3)
    n, r = 300, 16
    rows = rng.normal(size=(n * r, 20)).astype(np.float32)
    value = rows.reshape(n, r, 20)[:, :, 0].sum(1)
    cost = np.exp(-value / 8)
    part = (rows, np.arange(0, n * r + 1, r, dtype=np.int32), np.zeros(n, np.int32), cost)
    score = _core.Forest.train(*part).score(part[0], part[1])
    assert np.isfinite(score).all() and _core.model_metrics(*part, score)["pairwise"] > 0.9


def test_save_load_predict(pilot, tmp_path):
    part = pick(pilot, np.arange(200))
    forest = _core.Forest.train(*part, trees=30)
    forest.save(str(tmp_path / "m"), '{"device": "cpu"}')
    again = _core.Forest.load(str(tmp_path / "m"))
    assert again.info == '{"device": "cpu"}' and again.n_trees == 30
    assert (again.score(part[0], part[1]) == forest.score(part[0], part[1])).all()
    raw = bytearray((tmp_path / "m").read_bytes())
    raw[60] ^= 1
    (tmp_path / "bad").write_bytes(raw)
    with pytest.raises(ValueError, match="damaged"):
        _core.Forest.load(str(tmp_path / "bad"))
    with pytest.raises(ValueError, match="not a nestsmith model"):
        (tmp_path / "text").write_text("hello " * 30)
        _core.Forest.load(str(tmp_path / "text"))
    with pytest.raises(OSError, match="cannot read"):
        _core.Forest.load(str(tmp_path / "absent"))


@pytest.mark.parametrize("cost", [[1e-3], [1e10, 1e10], [1e-3, 1e-3, 1e-3], [np.nan, 1e-3, 2e-3], [1e-3, 1e10]])
def test_degenerate_data(cost):
    n = len(cost)
    rows = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    args = (rows, np.arange(n + 1, dtype=np.int32), np.zeros(n, np.int32), np.array(cost))
    assert np.isfinite(_core.Forest.train(*args, trees=5).score(rows, args[1])).all()


def test_failed_states_score_minus_infinity(pilot):
    forest = _core.Forest.train(*pick(pilot, np.arange(100)), trees=5)
    score = forest.score(pilot[0][:4], np.array([0, 2, 2, 4], np.int32))
    assert np.isneginf(score[1]) and np.isfinite(score[[0, 2]]).all()


def test_bad_arguments():
    rows = np.zeros((3, 4), np.float32)
    ok = np.array([0, 1, 3], np.int32)
    with pytest.raises(ValueError, match="first"):
        _core.Forest.train(rows, [0, 5], [0], [1.0])
    with pytest.raises(ValueError, match="cost"):
        _core.Forest.train(rows, ok, [0, 0], [1.0])
    with pytest.raises(ValueError, match="not finite"):
        _core.Forest.train(np.full((3, 4), np.inf, np.float32), ok, [0, 0], [1.0, 2.0])
    with pytest.raises(ValueError, match="loss"):
        _core.Forest.train(rows, ok, [0, 0], [1.0, 2.0], loss="square")
