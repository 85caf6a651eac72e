"""Tuning logs of templates: the format, what strangers write, and the tools."""

import functools
import io
import json
import logging
import os
import pickle
import re
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st
from logs import MALI, RECORD, record

import nestsmith
from nestsmith import autotvm
from nestsmith.autotvm import MeasureErrorNo, MeasureInput, MeasureResult, record as records
from nestsmith.autotvm.measure.measure import flops_of
from nestsmith.autotvm.task import ConfigEntity
from nestsmith.autotvm.task.task import Task
from nestsmith.error import TVMValueError
from nestsmith.exec import autotvm_log_editor
from nestsmith.target import Target


def costs_of(path):
    return [res.costs for _, res in records.load_from_file(path)]


# ---- the format ----


def test_the_record_of_the_specification():
    inp, res = records.decode(json.dumps(RECORD))
    assert inp.task.workload == (
        "conv2d_nchw_spatial_pack.mali", ("TENSOR", (1, 64, 56, 56), "float32"), ("TENSOR", (64, 64, 3, 3), "float32"),
        (1, 1), (1, 1, 1, 1), (1, 1), "float32",
    )  # fmt: skip
    assert inp.target.keys == ["mali", "opencl", "gpu"] and str(inp.target) == MALI
    assert inp.config["tile_ow"].size == [-1, 7, 4] and inp.config.cost == 0.0123 and inp.task.config_space is None
    assert res == MeasureResult((0.0123,), 0, 1.87, 1606000000.12)
    again = json.loads(records.encode(inp, res))
    assert again == {**RECORD, "tvm_version": nestsmith.__version__}
    assert records.measure_str_key(inp, include_config=False) + str(inp.config) == records.measure_str_key(inp)


def test_a_failed_measurement():
    inp, _ = records.decode(json.dumps(RECORD))
    failed = MeasureResult(("Traceback ...", RuntimeError("no")), MeasureErrorNo.RUNTIME_DEVICE, 0.5, 17.0)
    line = records.encode(inp, failed)
    assert json.loads(line)["result"] == [[1e9], 4, 0.5, 17.0]
    assert records.decode(line)[1] == MeasureResult((1e9,), 4, 0.5, 17.0)


def test_extra_travels_beside_the_result():
    inp, res = records.decode(record(extra={"device": "Mali-G76", "flop": 3.0}))
    assert res.extra == {"device": "Mali-G76", "flop": 3.0} and len(res) == 4
    assert json.loads(records.encode(inp, res))["extra"] == res.extra
    assert pickle.loads(pickle.dumps(res)).extra == res.extra


@pytest.mark.parametrize(
    "text, keys, option",
    [
        ("opencl -keys=mali,opencl,gpu -device=mali -max_num_threads=256", ["mali", "opencl", "gpu"], ("device", "mali")),
        ("llvm -device=arm_cpu -target=aarch64-linux-gnu", ["arm_cpu", "cpu"], ("mtriple", "aarch64-linux-gnu")),
        ("llvm -keys=cpu -link-params=0 -mcpu=core-avx2", ["cpu"], ("mcpu", "core-avx2")),
        ("cuda -keys=cuda,gpu -arch=sm_75 -max_num_threads=1024 -model=t4 -thread_warp_size=32", ["cuda", "gpu"], ("model", "t4")),
        ("opencl -keys=adreno,opencl,gpu -device=adreno -supports_float16=1", ["adreno", "opencl", "gpu"], ("device", "adreno")),
    ],
)
def test_targets_of_releases(text, keys, option):
    inp, _ = records.decode(record(target=text))
    assert inp.target.keys == keys and str(inp.target.attrs[option[0]]) == option[1]


def test_other_protocols_are_refused():
    inp, res = records.decode(json.dumps(RECORD))
    for call in (lambda: records.encode(inp, res, "pickle"), lambda: records.decode("a\tb", protocol="pickle")):
        with pytest.raises(TVMValueError, match="protocol is 'pickle'; only 'json'"):
            call()


def test_records_of_version_01_are_skipped(tmp_path, caplog):
    (tmp_path / "old.log").write_text('{"v": 0.1, "i": [1], "r": [2]}\n' * 3 + record())
    autotvm.log._say_old.cache_clear()
    assert costs_of(tmp_path / "old.log") == [(0.0123,)]
    assert [r.message for r in caplog.records if "version 0.1" in r.message] == [caplog.records[0].message]


# ---- logs of strangers ----


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda r: r.pop("config"), "the record has no 'config'"),
        (lambda r: r["input"].pop(), r"input must be \[target, task"),
        (lambda r: r["input"].__setitem__(0, 7), "the target is 7"),
        (lambda r: r["input"].__setitem__(0, "toaster"), "unknown target 'toaster'"),
        (lambda r: r["input"].__setitem__(1, ""), "the task is ''"),
        (lambda r: r["input"].__setitem__(2, {}), "arguments must be a list"),
        (lambda r: r["input"][2].__setitem__(0, {"a": 1}), "the arguments hold an object"),
        (lambda r: r["input"].__setitem__(2, functools.reduce(lambda x, _: [x], range(600), 1)), "nested too deeply"),
        (lambda r: r.__setitem__("result", [1]), r"result must be \[costs"),
        (lambda r: r["result"].__setitem__(0, []), "costs must be a list"),
        (lambda r: r["result"].__setitem__(0, ["fast"]), "a cost is 'fast'"),
        (lambda r: r["result"].__setitem__(0, [0.0]), "a cost is 0.0; it must be positive"),
        (lambda r: r["result"].__setitem__(0, [-1e-3]), "a cost is -0.001; it must be positive"),
        (lambda r: r["result"].__setitem__(0, [float("nan")]), "a cost is nan; it must be a number"),
        (lambda r: r["result"].__setitem__(1, "0"), "error number is '0'"),
        (lambda r: r["result"].__setitem__(3, None), "the time stamp is None"),
        (lambda r: r["config"].__setitem__("index", "x"), "index is 'x'"),
        (lambda r: r["config"]["entity"].append(["a", "zz", 1]), "'a' is of kind 'zz'"),
    ],
)
def test_what_is_wrong_with_a_record(change, said, tmp_path, caplog):
    bad = json.loads(json.dumps(RECORD))
    change(bad)
    with pytest.raises(ValueError, match=said):
        records.decode(json.dumps(bad))
    log = tmp_path / "a.log"
    log.write_text(record() + json.dumps(bad) + "\n" + record(cost=0.5))
    assert costs_of(log) == [(0.0123,), (0.5,)]
    assert len(caplog.records) == 1
    assert re.search(rf"a\.log: 2 records read; 1 broken lines were skipped \(line 2\): .*{said}", caplog.text)


def test_a_file_that_is_no_log(tmp_path):
    (tmp_path / "a.log").write_text("hello\nworld\n")
    with pytest.raises(ValueError, match=r"holds no tuning record \(line 1: .*; is it a tuning log"):
        list(records.load_from_file(tmp_path / "a.log"))
    with pytest.raises(FileNotFoundError, match=r"nothing\.log does not exist"):
        list(records.load_from_file(tmp_path / "nothing.log"))
    (tmp_path / "b.log").write_text("\n# a comment\n\n")
    assert costs_of(tmp_path / "b.log") == []


WORDS = ["input", "config", "result", "v", "index", "entity", "code_hash", "extra"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(SCALARS, lambda x: st.lists(x) | st.dictionaries(st.sampled_from(WORDS), x), max_leaves=12)


@given(JSON)
def test_any_json_is_a_record_or_a_value_error(value):
    try:
        records.decode(json.dumps(value))
    except ValueError:
        pass


PLACES = [
    "input", "input.0", "input.1", "input.2", "input.2.0", "input.2.0.1", "input.3", "config", "config.entity", "config.entity.0",
    "config.entity.0.2", "config.index", "config.code_hash", "result", "result.0", "result.1", "result.2", "extra", "version",
]  # fmt: skip


@given(st.sampled_from(PLACES), SCALARS | st.sampled_from([[], {}, [[[]]]]))
def test_a_record_with_one_wrong_place(place, value):
    bad = json.loads(json.dumps(RECORD))
    at, keys = bad, [int(k) if k.isdigit() else k for k in place.split(".")]
    for k in keys[:-1]:
        at = at[k]
    at[keys[-1]] = value
    try:
        inp, res = records.decode(json.dumps(bad))
    except ValueError:
        return
    hash(inp.task.workload)
    assert isinstance(records.encode(inp, res), str) and isinstance(records.measure_str_key(inp), str)


def test_nesting_and_bytes_that_are_no_text(tmp_path, caplog):
    with open(tmp_path / "a.log", "wb") as f:
        f.write(b"[" * 100000 + b"\n" + b"\xff\xfe\n" + record().encode() + b'{"input": 1' + b"x" * 2_000_000 + b"\n" + record()[:40].encode())
    assert costs_of(tmp_path / "a.log") == [(0.0123,)]
    assert "1 records read" in caplog.text and "3 broken lines" in caplog.text and "incomplete and was dropped" in caplog.text


# ---- tools ----


def test_best_records(tmp_path, caplog):
    log, out = tmp_path / "a.log", tmp_path / "best.log"
    lines = [record(cost=0.3, index=1), record(cost=0.1, index=2), record(cost=0.01, index=3, error=4),
             record(cost=0.2, index=2), record(cost=0.05, index=2), record(target="cuda", task="x.cuda", cost=0.4)]  # fmt: skip
    log.write_text("".join(lines))
    records.pick_best(str(log), out)
    assert costs_of(out) == [(0.05,), (0.4,)]  # the best of what was measured twice
    log.write_text(record(cost=0.5, index=7) + record(target="cuda", task="x.cuda", cost=0.2, index=8))
    records.pick_best(log, str(out))
    assert costs_of(out) == [(0.2,), (0.05,)]
    text = io.StringIO()
    records.pick_best(log, text)
    assert len(text.getvalue().splitlines()) == 2 and text.getvalue().endswith("\n")


def test_best_records_of_several_devices(tmp_path):
    log = tmp_path / "a.log"
    task = "dense_small_batch.gpu"
    log.write_text(
        record(target="cuda -model=a", task=task, cost=0.1, index=1) + record(target="cuda -model=b", task=task, cost=0.2, index=2)
        + record(target="cuda -model=b", task=task, cost=0.3, index=3) + record(task=task, cost=0.4, index=4)
    )  # fmt: skip
    records.pick_best(log, tmp_path / "out")
    assert costs_of(tmp_path / "out") == [(0.1,), (0.2,), (0.4,)]


def test_an_output_that_is_no_log_stays(tmp_path):
    log, out = tmp_path / "a.log", tmp_path / "precious.txt"
    log.write_text(record())
    out.write_text("my thesis\n")
    with pytest.raises(ValueError, match="precious.txt holds no tuning record"):
        records.pick_best(log, out)
    assert out.read_text() == "my thesis\n" and sorted(os.listdir(tmp_path)) == ["a.log", "precious.txt"]


def test_a_log_per_task(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(record(index=1) + record(target="cuda", task="x.cuda") + record(index=1, cost=0.5) + record(index=2))
    names = records.split_workload(log)
    assert names == [f"{log}.000.wkl", f"{log}.001.wkl"]
    assert [costs_of(n) for n in names] == [[(0.0123,), (0.0123,)], [(0.0123,)]]
    records.split_workload(log, clean=False)
    assert len(costs_of(names[0])) == 3


def test_command_line(tmp_path, capsys):
    log = tmp_path / "a.log"
    log.write_text(record() + record(cost=0.5, index=2))
    assert records.main(["--mode", "read", "--i", str(log), "--begin", "1"]) == 0
    said = capsys.readouterr().out
    assert "costs=(0.5,)" in said and "0.0123" not in said and MALI in said
    assert records.main(["--mode", "pick", "--i", str(log)]) == 0 and costs_of(f"{log}.best.log") == [(0.0123,)]
    assert records.main(["--mode", "split", "--i", str(log)]) == 0 and len(costs_of(f"{log}.000.wkl")) == 2
    assert records.main(["--i", str(tmp_path / "none")]) == 1
    assert "none does not exist" in capsys.readouterr().err
    assert records.main(["--i", str(log), "--ir"]) == 1 or "conv2d" in capsys.readouterr().out


def test_command_line_shows_programs(tmp_path, capsys):
    @autotvm.template("test/records")
    def double(n):
        x = nestsmith.te.placeholder((n,), name="x")
        y = nestsmith.te.compute((n,), lambda i: x[i] * 2.0, name="y")
        s = nestsmith.te.create_schedule(y.op)
        autotvm.get_config().define_split("tile", y.op.axis[0], num_outputs=2)
        autotvm.get_config()["tile"].apply(s, y, y.op.axis[0])
        return s, [x, y]

    task = autotvm.create("test/records", (12,), "llvm")
    pair = MeasureInput(task.target, task, task.config_space.get(2)), MeasureResult((1e-3,), 0, 0.1, 1.0)
    (tmp_path / "a.log").write_text(records.encode(*pair) + "\n")
    assert records.main(["--i", str(tmp_path / "a.log"), "--ir", "--code"]) == 0
    said = capsys.readouterr().out
    assert "primfn(x_1: handle" in said and "0, 4)" in said and "float" in said and "for (" in said


def test_modules_run_as_programs(tmp_path):
    (tmp_path / "a.log").write_text(record(cost=0.2) + record(cost=0.1))
    run = [sys.executable, "-m", "nestsmith.autotvm.record", "--mode", "pick", "--i", "a.log", "--o", "b.log"]
    r = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert r.returncode == 0 and "RuntimeWarning" not in r.stderr and costs_of(tmp_path / "b.log") == [(0.1,)]


def test_editor(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_text(record(cost=0.2))
    (folder / "b.log").write_text(record(cost=0.1) + record(target="cuda", task="x.cuda"))
    (folder / "c.log").write_text("no log\n")
    (folder / "d.txt").write_text("something else\n")
    with caplog.at_level(logging.WARNING):
        assert autotvm_log_editor.main(["--act", "pick-best", "--i", str(folder)]) == 0
    assert costs_of("best.log") == [(0.1,), (0.0123,)] and "Ignore invalid file" in caplog.text
    assert autotvm_log_editor.main(["--act", "pick-best", "--i", str(folder / "a.log"), "--o", "one.log"]) == 0
    assert costs_of("one.log") == [(0.2,)]
    assert autotvm_log_editor.main(["--act", "pick-best", "--i", "nothing"]) == 1


def test_a_record_without_entities(tmp_path, caplog):
    """It is right where a template has no knobs; one with knobs once took it and crashed."""
    line = {**RECORD, "config": {"index": 0, "code_hash": None, "entity": []}}
    (tmp_path / "a.log").write_text(json.dumps(line) + "\n")
    for knobs in (False, True):
        with autotvm.apply_history_best(tmp_path / "a.log"):
            cfg = autotvm.DispatchContext.current.query(Target(MALI), records.decode(json.dumps(line))[0].task.workload)
        assert not cfg.is_fallback and cfg.cost == 0.0123
        caplog.clear()
        if knobs:
            cfg.define_split("x", 8, num_outputs=2)
            cfg.define_split("y", 8, num_outputs=2)
            cfg.fallback_split("x", [-1, 4])
            assert cfg.is_fallback and cfg["x"].size == [2, 4] and cfg["y"].size == [-1, 1]
        assert [r.getMessage() for r in caplog.records] == [
            "a record without entities is ignored: its template has knobs, the first is 'x'"
        ] * knobs


def test_the_task_of_a_record_is_the_users():
    assert isinstance(records.decode(record())[0].task, Task)
    assert isinstance(records.decode(record())[0].config, ConfigEntity)
    assert records.decode(record(target="llvm"))[0].target == Target("llvm")


# ---- what results are worth ----
def test_impossible_times_are_the_best_nowhere(tmp_path):
    """The engine's ranking (`auto_scheduler.cost`) is everybody's: the auto-scheduler's readers of a log and these agree."""
    good, limit = 1e-4, 1e-10
    for cost in (1e-15, 9.9e-11, limit, 2e-10):
        log = tmp_path / "t.log"
        log.write_text(record(cost=cost, index=1) + record(cost=good, index=3) + record(cost=0.0123, index=2))
        best = 1 if cost >= limit else 3
        history = autotvm.apply_history_best(str(log))
        assert {p[0].config.index for p in history.best_by_targetkey.values()} == {best}
        records.pick_best(log, tmp_path / "out.log")
        assert [i.config.index for i, _ in records.load_from_file(tmp_path / "out.log")] == [best]
        (tmp_path / "out.log").unlink()
        assert [i.config.cost for i, _ in records.load_from_file(log)] == [cost if cost >= limit else 1e10, good, 0.0123]
    log.write_text(record(cost=1e-15, index=1))
    assert autotvm.apply_history_best(str(log)).best_by_targetkey == {}


def test_quick_times_count_where_there_are_no_others(tmp_path):
    log = tmp_path / "t.log"
    quick = record(cost=1e-5, index=1, extra={"stage": "quick"})
    for lines, best in ((quick + record(cost=1e-4, index=3), 3), (record(cost=1e-4, index=3) + quick, 3), (quick, 1)):
        log.write_text(lines)
        found = autotvm.apply_history_best(str(log)).best_by_targetkey
        assert {p[0].config.index for p in found.values()} == {best}


class Flops:
    flop = 1e6


@pytest.mark.parametrize("cost", [1e-15, 0.0, -1.0, float("nan"), float("inf"), 1e10])
def test_no_tuner_or_callback_believes_an_impossible_time(cost):
    bad, good = MeasureResult((cost,), 0, 0.1, 1.0), MeasureResult((1e-4,), 0, 0.1, 1.0)
    monitor = autotvm.callback.Monitor()
    monitor(None, [MeasureInput(None, Flops, None)] * 2, [bad, good])
    assert list(monitor.trial_scores()) == [0.0, 1e10] and flops_of(Flops, bad) == 0.0
