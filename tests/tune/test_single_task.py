"""One operator, as the reference's tutorials on matrix products and convolution layers tune it: same statements."""

import inspect
import platform

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import auto_scheduler, te

N = L = M = 64


@auto_scheduler.register_workload
def matmul_add(N, L, M, dtype):
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    C = te.placeholder((N, M), name="C", dtype=dtype)
    k = te.reduce_axis((0, L), name="k")
    matmul = te.compute(
        (N, M),
        lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [B]},
    )
    out = te.compute((N, M), lambda i, j: matmul[i, j] + C[i, j], name="out")
    return [A, B, C, out]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    target = ns.target.Target("llvm")
    log_file = str(tmp_path_factory.mktemp("single") / "matmul.json")
    task = ns.auto_scheduler.SearchTask(func=matmul_add, args=(N, L, M, "float32"), target=target)
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=10,
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
        verbose=2,
    )
    task.tune(tune_option)
    return task, log_file


def product(func):
    a_np = np.random.default_rng(0).integers(-4, 4, (N, L)).astype(np.float32)
    b_np = np.random.default_rng(1).integers(-4, 4, (L, M)).astype(np.float32)
    c_np = np.random.default_rng(2).integers(-4, 4, (N, M)).astype(np.float32)
    dev = ns.cpu()
    tensors = [ns.nd.array(x, device=dev) for x in (a_np, b_np, c_np)]
    out = ns.nd.empty((N, M), device=dev)
    func(*tensors, out)
    np.testing.assert_array_equal(out.numpy(), a_np.dot(b_np) + c_np)
    evaluator = func.time_evaluator(func.entry_name, dev, min_repeat_ms=5)
    assert 0 < np.median(evaluator(*tensors, out).results) < 1


def test_definition(tuned):
    assert str(tuned[0].compute_dag) == (
        "A = PLACEHOLDER [64, 64]\n"
        "B = PLACEHOLDER [64, 64]\n"
        "matmul(i, j) += (A[i, k]*B[k, j])\n"
        "C = PLACEHOLDER [64, 64]\n"
        "out(i, j) = (matmul[i, j] + C[i, j])\n"
    )
    assert tuned[0].compute_dag.flop_ct == 2 * N * L * M + N * M


def test_apply_best(tuned):
    task, log_file = tuned
    sch, args = task.apply_best(log_file)
    assert "for " in str(ns.lower(sch, args, simple_mode=True))
    product(ns.build(sch, args, task.target))


def test_print_best(tuned):
    """The printed Python is a schedule: run by hand, it gives the same program."""
    task, log_file = tuned
    text = task.print_best(log_file)
    tensors = matmul_add(N, L, M, "float32")
    names = {t.op.name: t for t in (tensors[0], tensors[1], tensors[2], tensors[3])}
    names["matmul"] = next(t for t in tensors[3].op.input_tensors if t.op.name == "matmul")
    s = te.create_schedule(tensors[3].op)
    exec(text, {**names, "s": s, "te": te, "tvm": ns})
    product(ns.build(s, tensors, task.target))
    source = task.print_best(log_file, print_mode="c")
    assert "for (" in source and "restrict" in source
    with pytest.raises(AssertionError, match="cuda"):
        task.print_best(log_file, print_mode="cuda")


def test_resume(tuned, capsys):
    """A cost model trained on the log, a policy that knows its states."""
    task, log_file = tuned

    def resume_search(task, log_file):
        print("Resume search:")
        cost_model = auto_scheduler.XGBModel()
        cost_model.update_from_file(log_file)
        search_policy = auto_scheduler.SketchPolicy(
            task, cost_model, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log_file)]
        )
        tune_option = auto_scheduler.TuningOptions(
            num_measure_trials=5, measure_callbacks=[auto_scheduler.RecordToFile(log_file)]
        )
        task.tune(tune_option, search_policy=search_policy)

    before = [i.state.steps() for i, _ in auto_scheduler.load_records(log_file)]
    resume_search(task, log_file)
    after = [i.state.steps() for i, _ in auto_scheduler.load_records(log_file)]
    assert after[: len(before)] == before and len(after) == len(set(after)) == len(before) + 5
    assert "Loaded 10 measurement records" in capsys.readouterr().out


def test_other_process_pool(tuned, tmp_path):
    """`LocalRPCMeasureContext` and the older pair `create_task`, `auto_schedule`."""
    task = auto_scheduler.create_task(matmul_add, (N, L, M, "float32"), "llvm")
    measure_ctx = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=5)
    options = auto_scheduler.TuningOptions(4, runner=measure_ctx.runner, verbose=0)
    sch, args = auto_scheduler.auto_schedule(task, tuning_options=options)
    del measure_ctx
    product(ns.build(sch, args, "llvm"))


def test_round_size():
    """Every task has four rounds of at least 8 candidates where the user chose no size; a size that was chosen stands."""

    def size(trials, n_tasks=1, **given):
        return auto_scheduler.TuningOptions(trials, **given).round_size(n_tasks)

    assert [size(n, 24) for n in (23, 24, 100, 192, 1000, 1536, 20000)] == [0, 1, 4, 8, 10, 16, 64]
    assert [size(n) for n in (1, 8, 20, 64, 200, 1000)] == [1, 8, 8, 16, 50, 64]
    assert [size(n, 24, num_measures_per_round=64) for n in (23, 100, 1536)] == [0, 4, 64]
    assert size(1000, 2, num_measures_per_round=3) == 3
    options = auto_scheduler.TuningOptions(100)
    assert auto_scheduler.TuningOptions(100, num_measures_per_round=options.num_measures_per_round).round_size(24) == 4
    options.num_measures_per_round = 64  # chosen later
    assert options.round_size() == 64
    assert "num_measures_per_round=64," in str(inspect.signature(auto_scheduler.TuningOptions))


@auto_scheduler.register_workload
def quotients(n):
    a, b = (te.placeholder((n,), name=name, dtype="int32") for name in "AB")
    return [a, b, te.compute((n,), lambda i: te.floordiv(a[i], b[i]), name="C")]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="this processor divides by 0")
def test_a_task_whose_own_program_crashes(tmp_path, caplog):
    """Some divisors are 0, where processors stop: in another process, for what is expected as for the candidates."""
    given = {"A": np.arange(64, dtype="int32"), "B": np.arange(64, dtype="int32") % 3}
    task = auto_scheduler.SearchTask(func=quotients, args=(64,), target="llvm", task_inputs=given)
    log = tmp_path / "log.json"
    task.tune(auto_scheduler.TuningOptions(4, verbose=0, measure_callbacks=[auto_scheduler.RecordToFile(str(log))]))
    errors = [r.error_no for _, r in auto_scheduler.load_records(str(log))]
    assert errors and set(errors) <= {0, auto_scheduler.MeasureErrorNo.RUNTIME_DEVICE}
    assert "cannot be checked, its program as it is written does not run" in caplog.text
