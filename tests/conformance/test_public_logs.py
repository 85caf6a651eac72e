"""Public tuning logs: every record replays, is lowered within the limits of the device and compiles."""

import gzip
import json

import pytest
from candidates import DATA, lines
from networks_of_2021 import dag_of_2021
from networks_of_reference import ENGINE, extracted, workload

import helpers
from nestsmith import _core, auto_scheduler

CUDA = lines("tvm-resnet-18-NHWC-B1-cuda.json.gz")
LLVM = lines("tvm-resnet-50-NHWC-B1-llvm.json.gz")


def test_the_log_is_for_exactly_the_tasks_of_the_network():
    assert len(CUDA) == 24
    assert set(CUDA) == set(extracted("resnet-18-NHWC-cuda"))


def compile_record(dag, record, target, layout):
    state = _core.State(dag, record[6])
    assert json.loads(state.steps()) == json.loads(record[6])
    if target.kind == "cuda":
        verdict = _core.gpu_check(state, target)
        assert verdict["ok"], verdict["why"]
    source, manifest = _core.candidate_source(state, target, layout)
    binary, _, _ = _core.build(target, source, 120.0)
    assert len(binary) > 500 and json.loads(manifest)["kernels"]
    return json.loads(manifest)


@pytest.mark.some(4)
@pytest.mark.parametrize("index", range(24))
def test_cuda_records_compile_for_sm_90(index):
    there, why = _core.build_available("cuda")
    if not there:
        pytest.skip(why)
    dag = helpers.resnet18_task(index, "p", "pool")
    manifest = compile_record(dag, CUDA[dag.workload_key()], ENGINE["cuda"], 0)
    assert manifest["sm"] == 90


# ---- the log of early 2021: stage names and keys of that time ----


@pytest.mark.some(21)
@pytest.mark.parametrize("number", range(26))
def test_llvm_records_compile_as_c(number):
    record = list(LLVM.values())[number]
    assert len(LLVM) == 26
    dag = dag_of_2021(json.loads(record[0])[1:])
    target = _core.Target("llvm", record[2] or ENGINE["llvm"].hw)
    manifest = compile_record(dag, record, target, record[4])
    weighty = any(op.name in ("Conv2dOutput", "T_dense") for op in dag.ops)
    assert any("axis" in a for a in manifest["args"]) == (weighty and record[4] == 2), [
        a["shape"] for a in manifest["args"]
    ]


def test_a_run_goes_on_from_a_log_with_the_newer_names(tmp_path):
    """Tasks carry both names of their workload; a log may use either."""
    path = tmp_path / "log.json"
    path.write_bytes(gzip.decompress((DATA / "tvm-resnet-18-NHWC-B1-cuda.json.gz").read_bytes()))
    mod, params = workload("resnet-18-NHWC")
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, "cuda -arch=sm_86")
    tuner = auto_scheduler.TaskScheduler(tasks, weights, load_log_file=str(path), callbacks=[])
    tuner.tune_option, tuner.early_stopping_task = auto_scheduler.TuningOptions(24, verbose=0), 1e20
    tuner._restore_status(str(path), 1)
    assert tuner.task_cts == [1] * 24 and all(c < 1 for c in tuner.best_costs)
    texts = {t.print_best(str(path)) for t in tasks}
    assert len(texts) == 24 and all("threadIdx.x" in t for t in texts)
