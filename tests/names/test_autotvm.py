"""Names of TVM's AutoTVM beside its main page."""

import concurrent.futures

import numpy as np
import pytest

import nestsmith
from nestsmith import autotvm, relay, te
from nestsmith.autotvm import database
from nestsmith.autotvm.graph_tuner import DPTuner, PBQPTuner
from nestsmith.autotvm.measure import executor


@autotvm.template("names/matmul")
def names_matmul(n):
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    cfg = autotvm.get_config()
    y, x = s[C].op.axis
    cfg.define_split("y", y, num_outputs=2)
    cfg.define_split("x", x, num_outputs=2)
    cfg["y"].apply(s, C, y)
    cfg["x"].apply(s, C, x)
    return s, [A, B, C]


@pytest.fixture
def task():
    return autotvm.task.create("names/matmul", args=(16,), target="llvm")


def test_ranges_of_index_tuners(task):
    tuner = autotvm.tuner.GridSearchTuner(task, range_idx=(3, 9))
    assert (tuner.begin_idx, tuner.end_idx, tuner.range_length, tuner.index) == (3, 10, 7, 3)
    assert [c.index for c in tuner.next_batch(4)] == [3, 4, 5, 6] and tuner.index == 7
    tuner.next_batch(10)
    assert tuner.index is None and not tuner.has_next()
    assert autotvm.tuner.RandomTuner(task).range_length == len(task.config_space)


def test_droplet_step(task):
    tuner = autotvm.tuner.DropletTuner(task)
    assert tuner.execution == tuner.step == 1 and tuner.total_execution == max(tuner.dims) == 5
    tuner.step = 4
    assert tuner.execution == 4


class _Here(executor.Executor):
    def __init__(self):
        self.calls = []

    def submit(self, func, *args, **kwargs):
        self.calls.append(kwargs)
        future = concurrent.futures.Future()
        future.set_result(func(*args, **kwargs))
        return future


def test_executor_of_a_user(task):
    """Each candidate goes through the executor, and its result is what the runner makes of it."""
    builder, runner = autotvm.LocalBuilder(), autotvm.LocalRunner(number=1, repeat=1)
    runner.executor = _Here()
    inputs = [autotvm.MeasureInput(task.target, task, task.config_space.get(i)) for i in (0, 7)]
    measure = autotvm.measure.create_measure_batch(task, autotvm.measure_option(builder, runner))
    built = builder.build(inputs)
    results = runner.run(inputs, built)
    assert [r.error_no for r in results] == [0, 0] and all(r.costs[0] > 0 for r in results)
    assert runner.executor.calls == [{"ref_input": None}] * 2
    getattr(measure, "close", lambda: None)()


def test_database(task):
    db = database.DummyDatabase()
    inputs = [autotvm.MeasureInput(task.target, task, task.config_space.get(i)) for i in range(3)]
    good, bad = autotvm.MeasureResult((0.5,), 0, 1.0, 0.0), autotvm.MeasureResult((1e10,), 4, 1.0, 0.0)
    db.save(inputs[0], bad)
    db.save(inputs[0], good, extend=True)
    db.save(inputs[1], good)
    db.save(inputs[1], bad)
    assert db.load(inputs[0]) == good and db.load(inputs[0], get_all=True) == [bad, good]
    assert db.load(inputs[1]) == bad and db.load(inputs[1], get_all=True) == [bad]
    assert database.filter_inputs(db, inputs) == [inputs[2]]
    assert database.filter_inputs(db, inputs, retry=True) == inputs[1:]
    autotvm.callback.log_to_database(db)(None, [inputs[2]], [good])
    assert db.load(inputs[2]) == good
    db.flush()
    assert db.load(inputs[0]) is None


def test_no_reference_logs(monkeypatch):
    monkeypatch.setenv("TOPHUB_LOCATION", "NONE")
    assert autotvm.tophub.context("llvm -device=arm_cpu").best_by_targetkey == {}
    assert np.isfinite(autotvm.utils.format_si_prefix(1500.0, "k"))


def test_graph_tuner_takes_the_fastest_records(tmp_path):
    x, w = (relay.var(n, shape=s) for n, s in (("x", (4, 16)), ("w", (8, 16))))
    mod = nestsmith.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    tasks = autotvm.task.extract_from_program(mod, {}, "llvm", ops=(relay.op.get("nn.dense"),))
    pairs = [(autotvm.MeasureInput(t.target, t, t.config_space.get(i)), autotvm.MeasureResult((cost,), error, 1.0, 0.0))
             for t in tasks for i, cost, error in ((0, 0.5, 0), (1, 0.2, 0), (2, 0.1, 4), (3, 0.3, 0))]  # fmt: skip
    tuner = DPTuner(mod["main"], {"x": (4, 16)}, pairs, ["nn.dense"], "llvm")
    tuner.benchmark_layout_transform(min_exec_num=10)
    with pytest.raises(ValueError, match="call run"):
        tuner.get_optimal_records()
    tuner.run()
    tuner.write_opt_sch2record_file(tmp_path / "graph.log")
    found = list(autotvm.record.load_from_file(tmp_path / "graph.log"))
    assert [i.task.workload for i, _ in found] == [t.workload for t in tasks] and {i.config.index for i, _ in found} == {1}
    with autotvm.apply_graph_best(tmp_path / "graph.log"):
        lib = relay.build(mod, "llvm")
    assert "record" in lib.get_graph_json()
    with pytest.raises(ValueError, match="have no record"):
        PBQPTuner(mod["main"], {}, [], ["nn.dense"], "llvm")


def test_sparse_weights_are_refused_when_they_are_used():
    from nestsmith.relay import data_dep_optimization as ddo

    with pytest.raises(AttributeError, match="keep the weights dense"):
        ddo.bsr_dense  # noqa: B018
