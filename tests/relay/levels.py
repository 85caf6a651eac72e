"""Small networks at every optimization level and on every device that is there, against the values wanted."""

import numpy as np

import nestsmith as ns
from nestsmith import IRModule, relay, transform
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
