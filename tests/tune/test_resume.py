"""Deterministic mode: a run that was killed at any moment, resumed from its log, ends as the uninterrupted one."""

import os
import pickle
import random
import signal
import subprocess
import sys
import time

import pytest
from runs import HERE, PACKAGE, TORN

import nestsmith as ns
from nestsmith import auto_scheduler, te


@auto_scheduler.register_workload
def resume_matmul(n):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    r = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")]


class Once(auto_scheduler.LocalRunner):
    """Measures a candidate once and gives the same times again, so that two runs can be compared."""

    def __init__(self):
        super().__init__(number=1, repeat=1, min_repeat_ms=0, timeout=20)
        self.seen, self.asked = {}, 0

    def run(self, measure_inputs, build_results, verbose=1):
        self.asked += len(measure_inputs)
        keys = [(i.task.workload_key, i.state.state_object.steps()) for i in measure_inputs]
        new = [k for k, key in enumerate(keys) if key not in self.seen]
        if new:
            results = super().run([measure_inputs[k] for k in new], [build_results[k] for k in new], verbose)
            self.seen.update((keys[k], r) for k, r in zip(new, results))
        return [self.seen[k] for k in keys]


def tune(runner, log, resume=False):
    target = ns.target.Target("llvm")
    tasks = [auto_scheduler.SearchTask(func=resume_matmul, args=(n,), target=target) for n in (8, 16)]
    tuner = auto_scheduler.TaskScheduler(
        tasks, [1, 3], callbacks=[], seed=5, load_log_file=str(log) if resume else None
    )
    small = {"evolutionary_search_population": 32, "sample_init_min_population": 8, "evolutionary_search_num_iters": 2}
    opt = auto_scheduler.TuningOptions(
        20,
        num_measures_per_round=4,
        verbose=0,
        runner=runner,
        measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
    )
    tuner.tune(opt, search_policy_params=small)
    return tuner


def lines(log):
    return sorted((i.task.workload_key, i.state.steps(), r.costs) for i, r in auto_scheduler.RecordReader(str(log)))


@pytest.mark.some(1)
@pytest.mark.parametrize("overlap", [False, True])
def test_resumed_run_ends_like_the_uninterrupted_one(tmp_path, monkeypatch, overlap):
    monkeypatch.setattr(auto_scheduler.TaskScheduler, "_overlap", lambda self: overlap)
    runner, whole, cut = Once(), tmp_path / "whole.json", tmp_path / "cut.json"
    first = tune(runner, whole)
    assert first.ct == runner.asked == len(lines(whole)) == 20
    rng = random.Random(3)
    size = os.path.getsize(whole)
    for at in (size, rng.randrange(1, size // 2), rng.randrange(size // 2, size)):
        cut.write_bytes(whole.read_bytes()[:at])
        kept = len(lines(cut))
        runner.asked = 0
        again = tune(runner, cut, resume=True)
        assert runner.asked == 20 - kept
        assert lines(cut) == lines(whole)
        assert again.best_costs == first.best_costs and again.task_trials == first.task_trials
    runner.asked = 0
    other = tune(runner, tmp_path / "again.json")
    assert other.best_costs == first.best_costs and lines(tmp_path / "again.json") == lines(whole)


KILLED = f"""
import pickle, sys
sys.path[:0] = [{HERE!r}, {PACKAGE!r}]
import test_resume
from nestsmith import auto_scheduler
{TORN}
seen, log, resume, overlap, most, seed = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
if most:
    tear(log, random.Random(seed), most)
auto_scheduler.TaskScheduler._overlap = lambda self: bool(overlap)
runner = test_resume.Once()
with open(seen, "rb") as f:
    runner.seen = pickle.load(f)
known = len(runner.seen)
print("begin", flush=True)
test_resume.tune(runner, log, bool(resume))
assert len(runner.seen) == known, "the search went another way"
"""


def run_and_kill(closing, args, moment):
    """Runs KILLED until it kills itself in mid-write, or for so many seconds. False: it came to its end before."""
    command = [sys.executable, "-c", KILLED, *map(str, args)]
    p = closing(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    assert p.stdout.readline().strip() == "begin", p.communicate()
    if moment is not None:
        time.sleep(moment)
        p.kill()
    _, err = p.communicate(timeout=300)
    assert p.returncode in (0, -signal.SIGKILL), err[-3000:]
    return p.returncode != 0


@pytest.mark.some(1)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=[pytest.mark.full, pytest.mark.long])])
def test_killed_at_any_moment(tmp_path, monkeypatch, closing, overlap, kills):
    """SIGKILL at random moments, half of them while a record is being written; some resumed runs are killed, too."""
    monkeypatch.setattr(auto_scheduler.TaskScheduler, "_overlap", lambda self: overlap)
    runner, whole = Once(), tmp_path / "whole.json"
    begin = time.time()
    first = tune(runner, whole)
    length, seen, killed = time.time() - begin, tmp_path / "seen", 0
    rng = random.Random(7)
    for k in range(200):
        if killed >= kills:
            break
        seen.write_bytes(pickle.dumps(runner.seen))
        cut, resume = tmp_path / f"cut-{k}.json", 0
        for _ in range(rng.choice((1, 1, 2))):
            by_time = rng.random() < 0.5
            args = (seen, cut, resume, int(overlap), 0 if by_time else 6, k)
            killed += run_and_kill(closing, args, rng.uniform(0, length) if by_time else None)
            resume = int(cut.exists())
        kept = len(lines(cut)) if resume else 0
        runner.asked = 0
        again = tune(runner, cut, resume=bool(resume))
        assert runner.asked == 20 - kept
        assert lines(cut) == lines(whole)
        assert again.best_costs == first.best_costs and again.task_trials == first.task_trials
    assert killed >= kills
