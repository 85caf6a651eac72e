"""Small networks at every optimization level and on every device that is there, against the values wanted."""

import numpy as np

import nestsmith as ns
from nestsmith import IRModule, auto_scheduler, relay, transform
from nestsmith.contrib import graph_executor

LEVELS = (0, 1, 2, 3)


def function(body):
    """A function of an expression (or several results): its parameters are the free variables."""
    body = body.astuple() if hasattr(body, "astuple") else body
    return relay.Function(relay.expr.free_vars(body), body)


def outputs(body, inputs, level=3, target="llvm"):
    """The outputs of an expression compiled at a level."""
    with transform.PassContext(opt_level=level):
        lib = relay.build(IRModule.from_expr(function(body)), target)
    m = graph_executor.GraphModule(lib["default"](ns.device(target, 0)))
    m.run(**inputs)
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


def tuned_outputs(body, inputs, constants=(), seed=0):
    """The outputs of an expression whose kernels have schedules of the search, drawn with a seed; the inputs named in
    `constants` are bound at the build, as weights are."""
    f, params = function(body), {k: inputs[k] for k in constants}
    history = auto_scheduler.ApplyHistoryBest(None)
    for t in auto_scheduler.extract_tasks(f, params, "llvm")[0]:
        policy = auto_scheduler.SketchPolicy(t, auto_scheduler.RandomModel(), seed=seed, verbose=0)
        history.update(t.target, t.workload_key, policy.sample_initial_population()[0])
    with history, transform.PassContext(opt_level=3):
        lib = relay.build(IRModule.from_expr(f), "llvm", params=params)
    m = graph_executor.GraphModule(lib["default"](ns.cpu(0)))
    m.run(**{k: v for k, v in inputs.items() if k not in constants})
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


def same(body, inputs, want, tolerance=0.0, levels=LEVELS, target="llvm"):
    """Fails unless the outputs have shapes, types and values of `want` (an array or several) at every level; without a
    tolerance to the bit, NaN included."""
    want = [np.asarray(w) for w in (want if isinstance(want, (list, tuple)) else [want])]
    for level in levels:
        got = outputs(body, inputs, level, target)
        assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]
        for g, w in zip(got, want):
            if tolerance:
                np.testing.assert_allclose(g, w, tolerance, tolerance, err_msg=f"opt_level {level}")
            else:
                np.testing.assert_array_equal(g, w, err_msg=f"opt_level {level}")
