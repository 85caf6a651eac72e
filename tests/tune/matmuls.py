"""Small tuning runs: the tasks, options and search parameters that the tests of this folder share."""

import nestsmith as ns
from nestsmith import auto_scheduler, te


@auto_scheduler.register_workload
def tune_matmul(n, m, k):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")]


@auto_scheduler.register_workload
def tune_for_minutes():
    a = te.placeholder((4,), name="A")
    i, k = te.reduce_axis((0, 1 << 20), name="i"), te.reduce_axis((0, 1 << 14), name="k")
    return [a, te.compute((4,), lambda j: te.sum(te.sin(a[j] * (i + k).astype("float32")), axis=[i, k]), name="B")]


def long_task():
    """A task whose program as it is written runs for minutes."""
    return auto_scheduler.SearchTask(func=tune_for_minutes, args=(), target=ns.target.Target("llvm"))


def tasks_of(*sizes, target="llvm"):
    target = ns.target.Target(target)
    return [
        auto_scheduler.SearchTask(func=tune_matmul, args=(n, n, n), target=target, desc=f"matmul_{n}") for n in sizes
    ]


def options(trials, batch=64, log=None, **more):
    runner = auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0, timeout=20)
    callbacks = [auto_scheduler.RecordToFile(str(log))] if log else []
    more.setdefault("verbose", 0)
    return auto_scheduler.TuningOptions(
        num_measure_trials=trials, num_measures_per_round=batch, runner=runner, measure_callbacks=callbacks, **more
    )


def small(**more):
    return {
        "evolutionary_search_population": 64,
        "sample_init_min_population": 8,
        "evolutionary_search_num_iters": 1,
        **more,
    }
