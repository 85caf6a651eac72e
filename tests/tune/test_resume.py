"""Deterministic mode: a run that was killed at any moment, resumed from its log, ends as the uninterrupted one."""

import os
import random

import pytest

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
