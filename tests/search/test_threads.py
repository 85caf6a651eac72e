"""Several Python threads at one task: sources, references and states, all from one DAG."""

import os
import signal
import threading
import time

import pytest
from search_cases import CPU2, conv_bn_relu, policy

from helpers import PATIENCE
from nestsmith import _core


def test_threads_share_a_dag():
    dag = _core.ComputeDAG(conv_bn_relu(1, 6, 6, 4, 8))
    p = policy(dag, CPU2, seed=1)
    states = p.sample()[:4]
    want = [_core.candidate_source(s, CPU2)[0] for s in states]
    data, bad = _core.reference_data(dag), []

    def run(work):
        try:
            for _ in range(12):
                work()
        except Exception as e:  # noqa: BLE001
            bad.append(e)

    def sources():
        got = [_core.candidate_source(s, CPU2)[0] for s in states]
        if got != want:
            bad.append("sources differ")

    def texts():
        if not dag.text() or not [s.text() for s in states]:
            bad.append("no text")
        for s in states:
            _core.State(dag, s.steps()).infer_bounds()

    def references():
        if _core.reference_data(dag) != data:
            bad.append("references differ")

    threads = [threading.Thread(target=run, args=(w,)) for w in (sources, texts, references, sources)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    assert not bad and not any(t.is_alive() for t in threads), bad


def test_one_policy_is_one_search_at_a_time():
    p = policy(conv_bn_relu(1, 14, 14, 32, 64), CPU2, seed=1)
    started, errors = threading.Event(), []
    p.set_listener(lambda *a: started.set())
    t = threading.Thread(target=lambda: p.round(64))
    t.start()
    started.wait(300)
    try:
        for _ in range(3):
            p.sample_shares(1)
    except RuntimeError as e:
        errors.append(str(e))
    t.join(300)
    assert not t.is_alive()
    assert errors == [] or "already searching" in errors[0]
    if not errors:
        pytest.skip("the search ended before the other thread could ask")


def test_an_estimate_lets_others_run_and_can_be_interrupted():
    dag = _core.ComputeDAG(conv_bn_relu(1, 14, 14, 32, 64))
    p = policy(dag, CPU2, seed=1)
    state = p.sample()[0]
    once = p.estimate(state)
    assert once > 0 and p.estimate(state, 3) == once
    with pytest.raises(ValueError, match="n is 0"):
        p.estimate(state, 0)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        p.estimate(state, 10**9)  # hours
    assert time.monotonic() - begin < PATIENCE
