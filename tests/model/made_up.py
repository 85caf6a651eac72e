"""A task whose states have made-up times, for cost models to learn from."""

from nestsmith import auto_scheduler, te


@auto_scheduler.register_workload
def cost_model_matmul(n, m, k):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="r")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def timed(task):
    """States with made-up times: the closed-form estimate decides, so that there is something to learn."""
    policy = auto_scheduler.SketchPolicy(task, seed=3, verbose=0)
    states = policy.sample_initial_population()[:60]
    score = auto_scheduler.AnalyticModel().predict(task, states)
    inputs = [auto_scheduler.MeasureInput(task, s) for s in states]
    results = [auto_scheduler.MeasureResult([1e-6 / s], 0, "", 0.1, 0) for s in score]
    return inputs, results
