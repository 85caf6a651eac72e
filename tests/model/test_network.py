"""Model N, the network, on the same real timings as the trees."""

import ctypes.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_forest import load_pilot, metrics, pick

from helpers import full
from nestsmith import _core


@pytest.fixture(scope="module")
def pilot():
    return load_pilot()


@pytest.mark.parametrize("folds,known", [(1, 0.875), full(4, 0.858)])
def test_hold_out_by_task(pilot, folds, known):
    task, got = pilot[2], []
    for fold in range(folds):
        held = np.isin(task, [2 * fold, 2 * fold + 1])
        net = _core.Network.train(*pick(pilot, np.flatnonzero(~held)), loss="pairwise", seed=1)
        got.append(metrics(net, pick(pilot, np.flatnonzero(held))))
    pairwise, peak = (np.mean([g[k] for g in got]) for k in ("pairwise", "a_peak32"))
    print(f"hold-out by task: pairwise {pairwise:.3f} a-peak@32 {peak:.3f}")
    assert abs(pairwise - known) <= 0.01 and peak >= 0.83


def test_same_seed_same_file(pilot, tmp_path):
    part = pick(pilot, np.arange(0, 4800, 8))
    nets = [_core.Network.train(*part, steps=40, seed=s) for s in (7, 7, 8)]
    for k, n in enumerate(nets):
        n.save(str(tmp_path / str(k)))
    a, b, c = ((tmp_path / str(k)).read_bytes() for k in range(3))
    assert a == b != c
    two = _core.Network.train(*part, steps=40, seed=7, threads=2)
    s1, s2 = nets[0].score(part[0], part[1]), two.score(part[0], part[1])
    assert np.abs(s1 - s2).max() < 1e-2 and len(set(np.argsort(-s1)[:64]) & set(np.argsort(-s2)[:64])) >= 62


def test_save_load_and_go_on(pilot, tmp_path):
    part = pick(pilot, np.arange(300))
    net = _core.Network.train(*part, steps=60)
    net.save(str(tmp_path / "m"), '{"device": "cpu"}')
    again = _core.Network.load(str(tmp_path / "m"))
    assert again.info == '{"device": "cpu"}' and again.rules == 2
    assert (again.score(part[0], part[1]) == net.score(part[0], part[1])).all()
    better = _core.Network.train(*part, start=again)
    assert metrics(better, part)["pairwise"] > metrics(net, part)["pairwise"]
    with pytest.raises(ValueError, match="kind 2"):
        _core.Forest.load(str(tmp_path / "m"))
    raw = bytearray((tmp_path / "m").read_bytes())
    raw[-100] ^= 1
    (tmp_path / "m").write_bytes(raw)
    with pytest.raises(ValueError, match="damaged"):
        _core.Network.load(str(tmp_path / "m"))
    (tmp_path / "m").write_bytes(raw[:80])
    with pytest.raises(ValueError, match="damaged"):
        _core.Network.load(str(tmp_path / "m"))


@pytest.mark.parametrize("make", [_core.Forest.train, _core.Network.train])
def test_overfits_fifty_records(pilot, make):
    part = pick(pilot, np.arange(0, 4800, 96))
    assert metrics(make(*part), part)["pairwise"] >= 0.95


@pytest.mark.parametrize("cost", [[1e-3], [1e10, 1e10], [1e-3, 1e-3, 1e-3], [np.nan, 1e-3, 2e-3], [1e-3, 1e10]])
def test_degenerate_data(cost):
    n = len(cost)
    rows = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    args = (rows, np.arange(n + 1, dtype=np.int32), np.zeros(n, np.int32), np.array(cost))
    assert np.isfinite(_core.Network.train(*args, steps=5).score(rows, args[1])).all()


def test_failed_states_and_bad_arguments(pilot):
    part = pick(pilot, np.arange(100))
    net = _core.Network.train(*part, steps=5)
    score = net.score(pilot[0][:4], np.array([0, 2, 2, 4], np.int32))
    assert np.isneginf(score[1]) and np.isfinite(score[[0, 2]]).all()
    many = net.score(pilot[0][:2000], np.arange(0, 2001, 2, dtype=np.int32))
    one = [net.score(pilot[0][2 * i : 2 * i + 2], [0, 2])[0] for i in (0, 255, 256, 999)]
    assert np.allclose(many[[0, 255, 256, 999]], one, atol=1e-5)
    with pytest.raises(ValueError, match="hidden"):
        _core.Network.train(*part, hidden=0)
    with pytest.raises(ValueError, match="entries"):
        net.score(np.zeros((2, 3), np.float32), [0, 2])
    with pytest.raises(TypeError, match="start"):
        _core.Network.train(*part, start=3)


PLAIN = """
import sys
import numpy as np
from test_forest import load_pilot, pick
from nestsmith import _core
part = pick(load_pilot(), np.arange(0, 4800, 16))
np.save(sys.argv[1], _core.Network.train(*part, steps=20, seed=7).score(*part[:2]))
assert _core.product_library() is None
"""


def test_with_and_without_openblas(pilot, tmp_path):
    """The plain product gives what OpenBLAS does, which is used where it is installed."""
    part = pick(pilot, np.arange(0, 4800, 16))
    score = _core.Network.train(*part, steps=20, seed=7).score(*part[:2])
    assert _core.product_library() == ("libopenblas.so.0" if ctypes.util.find_library("openblas") else None)
    path = os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])
    environ = {**os.environ, "NESTSMITH_OPENBLAS": "", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", PLAIN, str(tmp_path / "score.npy")], env=environ, check=True)
    assert np.abs(score - np.load(tmp_path / "score.npy")).max() < 1e-2
