"""What must not break a cost model: being killed, times that are none, one record, ten thousand."""

import logging
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from made_up import cost_model_matmul, timed
from test_forest import load_pilot, pick

from helpers import PATIENCE, processor_seconds, wait_until, when
from nestsmith import _core, auto_scheduler
from nestsmith.auto_scheduler import make_cost_model

HERE = pathlib.Path(__file__).parent
HEAD = """
import sys, numpy as np
sys.path.insert(0, {here!r})
from test_forest import load_pilot, pick
from nestsmith import _core
data = load_pilot()
kind = {kind}
"""


@pytest.fixture(scope="module")
def task():
    return auto_scheduler.SearchTask(func=cost_model_matmul, args=(128, 128, 128), target="llvm")


@pytest.fixture(scope="module")
def measured(task):
    return timed(task)


def child(closing, kind, body):
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    text = HEAD.format(here=str(HERE), kind=kind) + body
    return closing(subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env=env))


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["_core.Forest", "_core.Network"])
def test_a_killed_run_leaves_a_whole_file(kind, tmp_path, closing):
    path = tmp_path / "model.acm"
    extra = "trees=4" if "Forest" in kind else "steps=4"
    body = f"""
while True:
    model = kind.train(*pick(data, np.arange(0, 4800, 16)), {extra})
    for _ in range(40): model.save({str(path)!r}, "{{}}")
    print("saved", flush=True)
"""
    rng = random.Random(5)
    for _ in range(3):
        p = child(closing, kind, body)
        assert p.stdout.readline() == "saved\n"
        time.sleep(rng.random() * 0.05)
        p.send_signal(signal.SIGKILL)
        p.wait()
        model = getattr(_core, kind.split(".")[1]).load(str(path))
        assert np.isfinite(model.score(*pick(load_pilot(), [0, 1])[:2])).all()


@pytest.mark.parametrize("kind, extra", [("_core.Forest", "trees=1000000"), ("_core.Network", "steps=1000000")])
def test_ctrl_c_ends_training(kind, extra, tmp_path, closing):
    path = tmp_path / "model.acm"
    small = extra.split("=")[0] + "=2"
    body = f"""
import time
part = pick(data, np.arange(0, 4800, 4))
kind.train(*part, {small}).save({str(path)!r}, "{{}}")
try:
    print("training", flush=True)
    kind.train(*part, {extra})
except KeyboardInterrupt:
    score = kind.train(*part, {small}).score(*part[:2])
    print("ended", np.isfinite(score).all(), flush=True)
"""
    p = child(closing, kind, body)
    assert p.stdout.readline() == "training\n"
    begun = processor_seconds(p.pid)
    assert wait_until(lambda: processor_seconds(p.pid) > begun + 0.3)  # it is in the middle of it
    p.send_signal(signal.SIGINT)
    said = []
    when(lambda: True, lambda: said.append(p.stdout.readline()))
    assert wait_until(lambda: said) and said == ["ended True\n"]  # the training takes hours
    assert p.wait(PATIENCE) == 0
    getattr(_core, kind.split(".")[1]).load(str(path))


NO_TIMES = [float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e10]


@pytest.mark.parametrize("train", [lambda *a: _core.Forest.train(*a, trees=8), lambda *a: _core.Network.train(*a, steps=8)])
@pytest.mark.parametrize("bad", NO_TIMES)
def test_times_that_are_none_count_as_failures(train, bad):
    rows, first, number, cost = pick(load_pilot(), np.arange(0, 4800, 24))
    failed, odd = cost.copy(), cost.copy()
    failed[::5], odd[::5] = 1e10, bad
    a, b = (train(rows, first, number, c).score(rows, first) for c in (failed, odd))
    assert np.isfinite(b).all() and (a == b).all()
    got = [_core.model_metrics(rows, first, number, c, a) for c in (failed, odd)]
    assert got[0] == got[1] and all(np.isfinite(v) for v in got[1].values())


@pytest.mark.parametrize("name", ["trees", "mlp"])
def test_odd_results_of_a_run(name, task, measured, caplog):
    inputs, results = measured
    odd = [auto_scheduler.MeasureResult([c], 0, "", 0.1, 0) for c in NO_TIMES]
    model = make_cost_model(name, seed=1)
    with caplog.at_level(logging.WARNING, "auto_scheduler"):
        model.update(inputs[: len(odd)], odd)
    assert "is no time" in caplog.text
    assert not any(np.isnan(model.predict(task, [i.state for i in inputs])))
    model.update(inputs[len(odd) :], results[len(odd) :])
    scores = model.predict(task, [i.state for i in inputs])
    assert not any(np.isnan(scores))
    assert model.evaluate(inputs, results)["pairwise"] > 0.7


@pytest.mark.parametrize("name", ["trees", "mlp"])
def test_one_record(name, task, measured, tmp_path):
    inputs, results = measured
    model = make_cost_model(name, seed=1)
    with pytest.raises(RuntimeError, match="has not been trained yet"):
        model.save(str(tmp_path / "m"))
    model.update(inputs[:1], results[:1])
    assert not any(np.isnan(model.predict(task, [i.state for i in inputs])))
    assert model.evaluate(inputs[:1], results[:1])["pairwise"] == 0.5


def test_ten_thousand_records():
    rows, first, number, cost = pick(load_pilot(), np.random.default_rng(1).integers(0, 4800, 10_000))
    forest = _core.Forest.train(rows, first, number, cost, trees=20, threads=2)
    net = _core.Network.train(rows, first, number, cost, steps=10)
    for model, least in ((forest, 0.8), (net, 0.6)):
        assert _core.model_metrics(rows, first, number, cost, model.score(rows, first))["pairwise"] > least
