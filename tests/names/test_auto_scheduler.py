"""Names of TVM's auto-scheduler beside its main page: what they return, compared with the engine or with plain arithmetic."""

import math
import pathlib
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

import nestsmith
from nestsmith import auto_scheduler, te, tir, topi
from nestsmith.auto_scheduler import _ffi_api, cost_model, utils
from nestsmith.auto_scheduler.cost_model.cost_model import PythonBasedModel
from nestsmith.auto_scheduler.cost_model.xgb_model import XGBModel
from nestsmith.contrib.popen_pool import PopenWorker
from nestsmith.registry import register_func, remove_global_func


@auto_scheduler.register_workload
def names_matmul(n):
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [A, B, te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


@auto_scheduler.register_workload
def names_sum(n):
    A, k = te.placeholder((n,), name="A"), te.reduce_axis((0, n), name="k")
    return [A, te.compute((), lambda: te.sum(A[k], axis=k), name="B")]


@pytest.fixture(scope="module")
def task():
    return auto_scheduler.SearchTask(func=names_matmul, args=(64,), target="llvm",
                                     hardware_params=auto_scheduler.HardwareParams(num_cores=4, target="llvm"))  # fmt: skip


def test_costs_have_values(tmp_path, task):
    result = auto_scheduler.MeasureResult([0.25, 0.5], 0, "", 1.0, 0)
    assert [c.value for c in result.costs] == [0.25, 0.5] and utils.array_mean(result.costs) == 0.375
    log = str(tmp_path / "log.json")
    state = auto_scheduler.SketchPolicy(task, verbose=0).sample_initial_population()[0]
    auto_scheduler.save_records(log, [auto_scheduler.MeasureInput(task, state)], [result])
    (_, back), = auto_scheduler.load_records(log)
    assert [c.value for c in back.costs] == [0.25, 0.5]
    assert cost_model.XGBModel is XGBModel is auto_scheduler.XGBModel and cost_model.PythonBasedModel is PythonBasedModel


def test_questions_about_sketches(task):
    """By the steps of each sketch."""
    small = auto_scheduler.SearchTask(func=names_sum, args=(128,), target="llvm", hardware_params=task.hardware_params)
    seen, asked = set(), [(task, 2), (small, 1)]
    for s, made in [(s, at) for t, at in asked for s in auto_scheduler.SketchPolicy(t, verbose=0).generate_sketches()]:
        kinds = [step[0] for step in s.transform_steps]
        for i, stage in enumerate(s.stages):
            splits = any(step[0] in ("SP", "FSP") for step in s.transform_steps) and stage.op_type == 1
            if "RF" not in kinds:
                assert _ffi_api.SearchPolicyUtilsIsTiled(stage) == splits
            else:
                assert _ffi_api.SearchPolicyUtilsHasRfactorStage(s, i) == (i == made)
            assert _ffi_api.SearchPolicyUtilsHasCacheWriteStage(s, i) == ("CHW" in kinds and i == made)
            assert not _ffi_api.SearchPolicyUtilsHasCacheReadStage(s, i) and not _ffi_api.SearchPolicyUtilsHasCrossThreadReduction(s, i)
        seen.update(kinds)
    assert {"RF", "CHW", "SP"} <= seen


def test_a_schedule_becomes_a_dag_with_all_its_stages():
    A, B, C = names_matmul(32)
    s = te.create_schedule(C.op)
    s.cache_write(C, "local")
    (local,) = [st.op for st in s.stages if st.op.name == "C.local"]
    s.cache_read(B, "shared", [local])
    dag = auto_scheduler.ComputeDAG(s)
    assert [op.name for op in dag.ops] == [st.op.name for st in s.stages] == ["A", "B", "B.shared", "C.local", "C"]
    assert [t.name for t in dag.tensors] == ["A", "B", "C"]
    assert dag.flop_ct == auto_scheduler.ComputeDAG([A, B, C]).flop_ct
    state = auto_scheduler.ComputeDAG([A, B, C]).get_init_state()
    local = state.cache_write(C, "local")
    state.cache_read(B, "shared", [local])
    assert [op.name for op in state.stage_ops] == [op.name for op in dag.ops]
    a, b = (np.random.default_rng(0).integers(0, 9, (32, 32)).astype("float32") for _ in range(2))
    c = nestsmith.nd.empty((32, 32))
    nestsmith.build(*dag.apply_steps_from_state(dag.get_init_state()), "llvm")(nestsmith.nd.array(a), nestsmith.nd.array(b), c)
    np.testing.assert_array_equal(c.numpy(), a @ b)


def test_bounds_of_a_recorded_state(tmp_path, task):
    state = auto_scheduler.SketchPolicy(task, verbose=0).sample_initial_population()[0]
    log = str(tmp_path / "log.json")
    auto_scheduler.save_records(log, [auto_scheduler.MeasureInput(task, state)], [auto_scheduler.MeasureResult([1], 0, "", 1, 0)])
    (inp, _), = auto_scheduler.load_records(log)
    assert str(task.compute_dag.infer_bound_from_state(inp.state)) == str(task.compute_dag.infer_bound_from_state(state))


def test_own_hash_names_each_task_once():
    calls = []
    register_func("auto_scheduler.compute_dag.hash_func", lambda text: calls.append(text) or len(calls) - 1)
    try:
        relay = nestsmith.relay
        x, w = relay.var("x", shape=(8, 16)), relay.var("w", shape=(4, 16))
        mod = nestsmith.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
        tasks, _ = auto_scheduler.extract_tasks(mod["main"], None, "llvm", include_simple_tasks=True)
    finally:
        remove_global_func("auto_scheduler.compute_dag.hash_func")
    assert len(calls) == len(tasks) and tasks[0].workload_key.startswith("[0, ")


def _sleep(seconds):
    time.sleep(seconds)
    return 5


def test_utils():
    assert utils.list_to_tuple([1, [2, [3]], "x"]) == (1, (2, (3,)), "x")
    assert utils.to_str_round([1.23456789, 2, "a", {"b": 0.5}], 3) == "[1.235, 2, a, {'b': '0.500'}]"
    with pytest.raises(ValueError, match="object"):
        utils.to_str_round(object())
    assert utils.decode_workload_key('["f", 1, [2, 3]]') == ("f", (1, 2, 3))
    assert utils.calc_workload_dis_factor(("f", (8, 4)), ("f", (4, 4))) == 2
    assert utils.calc_workload_dis_factor(("f", (8,)), ("g", (8,))) == math.inf
    assert utils.get_const_tuple((te.var("n"), 3))[1] == 3
    assert utils.call_func_with_thread(divmod, (7, 2), {}) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        utils.call_func_with_thread(divmod, (7, 0), {})
    worker = PopenWorker()
    assert utils.call_func_with_timeout(worker, 60, divmod, (7, 2)) == (3, 1)
    assert isinstance(utils.call_func_with_timeout(worker, 60, divmod, (7, 0)), ZeroDivisionError)
    try:
        raise RuntimeError("why " * 1000)
    except RuntimeError:
        assert "RuntimeError" in utils.make_traceback_info() and len(utils.make_traceback_info()) < 1000


def test_tvmscript_is_refused_when_it_is_used():
    from nestsmith.script import tir as T

    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "main"})

    with pytest.raises(NotImplementedError, match="nestsmith.te"):
        nestsmith.build(f, target="llvm")


def computations():
    A, B, C = names_matmul(8)
    x, w = te.placeholder((1, 14, 14, 8), name="x"), te.placeholder((3, 3, 8, 16), name="w")
    D = te.compute((8, 8), lambda i, j: te.if_then_else(tir.all(i > 1, j < 3), A[i, j], tir.Select(i > 2, C[i, j], te.const(0.1))), name="D",
                   attrs={"layout_free_placeholders": [B], "tag": "x"})  # fmt: skip
    return [A, B, topi.nn.relu(C)], [x, w, topi.nn.conv2d_nhwc(x, w, 2, 1, 1)], [A, topi.argmax(topi.nn.softmax(A), axis=1)], [A, B, D]


@pytest.mark.parametrize("k", range(4))
def test_dags_travel(k):
    dag = auto_scheduler.ComputeDAG(computations()[k])
    back = pickle.loads(pickle.dumps(dag))
    assert str(back) == str(dag) and back.workload_key() == dag.workload_key() and back.flop_ct == dag.flop_ct
    assert [op.name for op in back.ops] == [op.name for op in dag.ops]


def test_tasks_travel_to_processes_that_do_not_know_their_key():
    dag = auto_scheduler.ComputeDAG(computations()[0])
    task = auto_scheduler.SearchTask(compute_dag=dag, workload_key='["names-travelling"]', target="llvm")
    again = pickle.loads(pickle.dumps(task))
    assert '["names-travelling"]' in auto_scheduler.workload_registry.WORKLOAD_FUNC_REGISTRY
    assert str(again.compute_dag) == str(dag) and again.workload_key == task.workload_key
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).compute_dag.hash_key())"
    ran = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(task), capture_output=True, check=True,
                         env={"PYTHONPATH": str(pathlib.Path(nestsmith.__file__).parents[1]), "PATH": "/usr/bin:/bin"})  # fmt: skip
    assert ran.stdout.decode().strip() == dag.hash_key()


def test_shapes_of_layouts_that_schedules_gave():
    shape = auto_scheduler.get_shape_from_rewritten_layout
    assert shape("4o16i2o8i", ["o", "i"]) == [8, 128] and shape("3kh1k_w3kh", ["k_w", "kh"]) == [1, 9]
    for text in ("4o16x", "o4i", ""):
        with pytest.raises(ValueError, match="rewritten_layout") if text else pytest.raises(AssertionError):
            assert shape(text, ["o", "i"]) != [1, 1]
