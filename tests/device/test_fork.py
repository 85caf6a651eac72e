"""Forked children beside running threads: each computes, and none waits for a thread that only its parent has."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import nestsmith as ns
from helpers import PATIENCE

# A program whose threads run operators, a network and, with "tune", a tuner all the time, while its main thread forks.
BEGIN = textwrap.dedent("""
    import faulthandler, os, signal, sys, tempfile, threading, time, traceback
    import numpy as np
    import nestsmith as ns
    from nestsmith import _core, auto_scheduler, relay, te
    from nestsmith.contrib import graph_executor

    PATIENCE = %d
    os.chdir(tempfile.mkdtemp(dir=sys.argv[1]))
    faulthandler.register(signal.SIGALRM, chain=True)  # who hangs says where, and dies

    A = te.placeholder((64, 64), name="A")
    B = te.compute((64, 64), lambda i, j: A[i, j] + 1, name="B")
    s = te.create_schedule(B.op)
    s[B].parallel(B.op.axis[0])
    add = ns.build(s, [A, B], "llvm")
    ones, out = ns.nd.array(np.ones((64, 64), "float32")), ns.nd.array(np.zeros((64, 64), "float32"))

    mod, params = relay.testing.mlp.get_workload(1)
    lib = relay.build(mod, "llvm", params=params)
    shared, own = (graph_executor.GraphModule(lib["default"](ns.cpu(0))) for _ in range(2))
    image = np.random.default_rng(0).random((1, 1, 28, 28), "float32")
    for m in (shared, own):
        m.set_input("data", image)
        m.run()
    want = own.get_output(0).numpy()

    @auto_scheduler.register_workload
    def forked_matmul(n):
        a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        k = te.reduce_axis((0, n), name="k")
        return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]

    runner = auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=1)
    builder = auto_scheduler.LocalBuilder()
    def tune(n, trials, log):
        task = auto_scheduler.SearchTask(func=forked_matmul, args=(n,), target="llvm")
        small = {"evolutionary_search_population": 32, "sample_init_min_population": 8, "evolutionary_search_num_iters": 2}
        policy = auto_scheduler.SketchPolicy(task, params=small, verbose=0)
        record = auto_scheduler.RecordToFile(log)
        task.tune(auto_scheduler.TuningOptions(trials, verbose=0, builder=builder, runner=runner, measure_callbacks=[record]),
                  policy)
        return [r.error_no for _, r in auto_scheduler.RecordReader(log)]

    stop, done, wrong = False, {"add": 0, "network": 0, "tune": 0}, []
    def again(name, act):
        while not stop:
            act()
            done[name] += 1
    def tune_again():
        wrong.extend(e for e in tune(16 + done["tune"], 4, f"parent{done['tune']}.json") if e)
    def start(*names):
        acts = {"add": lambda: add(ones, out), "network": shared.run, "tune": tune_again}
        for name in names:
            threading.Thread(target=again, args=(name, acts[name]), daemon=True).start()
        return names
    def wait_for_work(name):
        seen, end = done[name], time.monotonic() + PATIENCE
        while done[name] == seen and time.monotonic() < end:
            time.sleep(0)

    def child(number, with_tuning):
        y = ns.nd.array(np.zeros((64, 64), "float32"))
        add(ones, y)
        assert (y.numpy() == 2).all()
        for m in (own, shared):
            m.set_input("data", image)
            m.run()
            assert np.array_equal(m.get_output(0).numpy(), want)
        if with_tuning:
            assert tune(100 + number, 2, f"child{number}.json") == [0, 0]

    def fork(body, *args):
        pid = os.fork()
        if pid:
            return os.waitpid(pid, 0)[1]
        signal.alarm(PATIENCE)
        code = 1
        try:
            body(*args)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
""")  # fmt: skip
BEGIN = BEGIN % PATIENCE


def run(code, tmp_path, limit=PATIENCE, **environment):
    env = {**os.environ, "NESTSMITH_NUM_THREADS": "2", **environment}
    program = [sys.executable, "-c", BEGIN + textwrap.dedent(code), str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(program, text=True, env=env, start_new_session=True, **pipes) as p:
        try:
            out, err = p.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGALRM)  # its children, too
            try:
                out, err = p.communicate(timeout=PATIENCE)
            finally:
                p.kill()
        return subprocess.CompletedProcess([], p.returncode, out, err)


FORKS = """
    forks, tunings, names = %d, %d, start("add", "network", "tune")
    bad = []
    for k in range(forks):
        wait_for_work(names[k %% 2])
        status = fork(child, k, tunings and k %% (forks // tunings) == 0)
        if status:
            bad.append((k, status))
    wait_for_work("tune")  # the parent's own work goes on
    stop = True
    print(bad, wrong)
"""


def test_children_beside_running_threads(tmp_path):
    out = run(FORKS % (12, 1), tmp_path, 3 * PATIENCE)
    assert out.stdout == "[] []\n", out


@pytest.mark.full
def test_hundred_children(tmp_path):
    out = run(FORKS % (100, 10), tmp_path, 20 * PATIENCE)
    assert out.stdout == "[] []\n", out


BLAS = """
    first, rng = np.arange(0, 257, 4, dtype=np.int32), np.random.default_rng(0)
    part = rng.random((256, 40), "float32"), first, np.zeros(64, np.int32), rng.random(64) + 0.1
    net, trained = _core.Network.train(*part, steps=5), [0]
    scores = net.score(*part[:2])
    def train(threads, steps):
        while not stop:
            _core.Network.train(*part, steps=steps, threads=threads)
            trained[0] += 1
    def use():
        assert np.allclose(net.score(*part[:2]), scores, atol=1e-2)
        _core.Network.train(*part, steps=2, threads=2)
    for threads in (1, 2):
        threading.Thread(target=train, args=(threads, 3), daemon=True).start()
    bad = 0
    for k in range(%d):
        seen = trained[0]
        while trained[0] == seen:
            time.sleep(0)
        bad += fork(use) != 0
    print(bad)
"""


@pytest.mark.full
def test_children_beside_training(tmp_path):
    """BLAS has locks and threads of its own."""
    out = run(BLAS % 200, tmp_path, 10 * PATIENCE)
    assert out.stdout == "0\n", out


ENDS = """
    import random, sys, threading, time
    import numpy as np
    from nestsmith import _core

    first, rng, trained = np.arange(0, 257, 4, dtype=np.int32), np.random.default_rng(0), [0]
    part = rng.random((256, 40), "float32"), first, np.zeros(64, np.int32), rng.random(64) + 0.1
    def train():
        while True:
            _core.Network.train(*part, steps=3, threads=2)
            trained[0] += 1
    for _ in range(2):
        threading.Thread(target=train, daemon=True).start()
    while trained[0] < 4:
        time.sleep(1e-3)
    time.sleep(random.Random(int(sys.argv[1])).random() * 0.02)
"""


def test_a_program_ends_while_its_threads_train():
    """OpenBLAS waits for its threads at the end, and one that gets work then would not hear that it is over (2 of 5 programs hung)."""
    for seed in range(6):
        subprocess.run([sys.executable, "-c", textwrap.dedent(ENDS), str(seed)], check=True, timeout=PATIENCE)


def test_what_is_the_parents_stays_the_parents(tmp_path):
    """A child that ends as a program does, after atexit and the ends of all objects, leaves the parent's processes alone;
    what needs them refuses in the child."""
    out = run(
        """
        task = auto_scheduler.SearchTask(func=forked_matmul, args=(16,), target="llvm")
        state = auto_scheduler.SketchPolicy(task, verbose=0).sample_initial_population()[0]
        inputs = [auto_scheduler.MeasureInput(task, state)]
        measure = lambda: runner.run(inputs, builder.build(inputs, 0), 0)[0].error_no
        assert measure() == 0
        worker, = runner._workers.values()
        session = _core.Session(_core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0)), 1)
        pid, data = worker.pid, _core.TaskData([(4, None, False, "float32"), (4, None, True, "float32")])
        def refused(act):
            try:
                act()
            except RuntimeError as e:
                assert "before the process was forked" in str(e), e
                return True
        start("add", "network")
        wait_for_work("network")
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE)
            assert refused(session.pending) and refused(lambda: worker.run(0, data, b"", "", {}))
            assert measure() == 0 and next(iter(runner._workers.values())).pid != pid
            session.close()
            sys.exit(7)
        status = os.waitpid(child, 0)[1]
        print(os.waitstatus_to_exitcode(status), worker.pid == pid, os.kill(pid, 0), measure(), session.pending())
        """,
        tmp_path,
    )
    assert out.stdout == "7 True None 0 0\n", out


def test_a_program_ends_beside_its_threads(tmp_path):
    out = run("""start("add", "network", "tune"); wait_for_work("network"); print("end")""", tmp_path)
    assert (out.returncode, out.stdout) == (0, "end\n"), out


@pytest.mark.parametrize("name", ["opencl", "cuda"])
def test_a_gpu_in_a_forked_child(name, tmp_path):
    if not ns.device(name).exist:
        pytest.skip(ns.device(name).why_not)
    code = """
        dev = ns.device("%s")
        x = ns.nd.array(np.ones(4, "float32"), dev)
        def use(act):
            try:
                act()
            except RuntimeError as e:
                assert "in use before this process was forked" in str(e) and "spawn" in str(e), e
            else:
                raise AssertionError("no error")
        def both():
            use(x.numpy)
            use(lambda: _core.Device(dev.device_type, 0))
        print(fork(both), x.numpy().sum())
    """
    out = run(code % name, tmp_path)
    assert out.stdout == "0 4.0\n", out


@pytest.mark.parametrize("name", ["opencl", "cuda"])
def test_a_gpu_in_the_child_alone(name, tmp_path):
    if not ns.device(name).exist:
        pytest.skip(ns.device(name).why_not)
    code = """
        def use():
            assert ns.nd.array(np.ones(4, "float32"), ns.device("%s")).numpy().sum() == 4
        print(fork(use))
    """
    assert run(code % name, tmp_path).stdout == "0\n"
