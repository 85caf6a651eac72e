"""Where relay.build gets schedules from: nobody, until the auto-scheduler is imported."""

import importlib
import logging
import re
import subprocess
import sys

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import auto_scheduler, relay, target, te, transform
from nestsmith.relay import schedules

BUILD = """
import sys
import nestsmith as ns
from nestsmith import relay, transform
x = relay.var("x", shape=(4, 8), dtype="float32")
mod = ns.IRModule.from_expr(relay.Function([x], relay.nn.softmax(x)))
with transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
    lib = relay.build(mod, "llvm")
print(*[m for m in sys.modules if m.startswith("nestsmith.auto_scheduler")])
"""


def test_the_build_needs_no_auto_scheduler():
    run = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout == "\n", run.stderr
    assert "nobody has imported nestsmith.auto_scheduler" in run.stderr


class Provider(schedules.Provider):
    """Answers nothing and notes what it was asked and told."""

    def __init__(self):
        self.asked, self.told = [], []

    def enabled(self):
        return True

    def find(self, target, variants, name):
        self.asked.append((str(target.kind), [[tuple(t.shape) for t in v] for v in variants], name))
        return [f"key of {name}", "older key"], None

    def layout(self, target):
        return 0

    def tell(self, mod, params, target, tasks):
        self.told += tasks


def test_what_a_provider_is_asked_and_told():
    x, w = relay.var("x", shape=(4, 8), dtype="float32"), relay.var("w", shape=(6, 8), dtype="float32")
    mod = ns.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    own, before = Provider(), schedules._installed[0]
    schedules.install(own)
    try:
        lib = relay.build(mod, "llvm")
    finally:
        schedules.install(before)
    (_, variants, name), = own.asked
    assert variants[0] == [(4, 8), (6, 8), (4, 6)] and len(variants) == 2
    assert own.told == [([f"key of {name}", "older key"], False)]
    rt = lib["default"](ns.cpu(0))
    a, b = np.ones((4, 8), "float32"), np.ones((6, 8), "float32")
    assert np.array_equal(rt.run_from_inputs(a, b)[0], a @ b.T)


def test_the_auto_scheduler_is_the_provider(caplog):
    x = relay.var("x", shape=(16,), dtype="float32")
    mod = ns.IRModule.from_expr(relay.Function([x], relay.sum(x)))
    with caplog.at_level(logging.WARNING), auto_scheduler.ApplyHistoryBest(None), transform.PassContext(opt_level=3):
        assert schedules.asked() is schedules._installed[0]
        relay.build(mod, "llvm")
    assert "Cannot find tuned schedules" in caplog.text
    assert schedules.asked() is None


@pytest.mark.parametrize("name", ["measure.recover_measure_input", "dispatcher.ApplyHistoryBestOrSample"])
def test_names_are_where_tvm_has_them(name):
    module, what = name.split(".")
    found = getattr(importlib.import_module(f"nestsmith.auto_scheduler.{module}"), what)
    assert found is getattr(auto_scheduler, what)


@pytest.mark.parametrize("rows, columns", [(4096, 1024), (4096, 1000), (1024, 4096)])
def test_first_choice_of_a_sum_over_columns(rows, columns):
    """Vectors along the columns, as the default schedule has them; vectors along the rows gather each element from a line of its own."""
    a, k = te.placeholder((rows, columns), name="A"), te.reduce_axis((0, rows), name="k")
    dag = auto_scheduler.ComputeDAG([a, te.compute((columns,), lambda j: te.sum(a[k, j], axis=k), name="C")])
    key = auto_scheduler.workload_registry.register_workload_tensors(dag.workload_key(), dag.tensors)
    state = auto_scheduler.ApplyHistoryBestOrSample(None).query(target.Target("llvm"), key, True, dag, "sum")
    assert re.search(r"for k .*\n +vectorize j\.1", str(state)), state
