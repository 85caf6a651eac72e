"""A tuning log is input from strangers: whatever a record asks for, it ends soon, in little memory, with a result or one
clear error, and nothing that stands in it is executed."""

import collections
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest
from hostile import attacks, own, product_step, step, wrong

import nestsmith as ns
from helpers import full
from nestsmith import _core, auto_scheduler, relay, te
from nestsmith.auto_scheduler import measure_record
from nestsmith.relay import testing

HERE = pathlib.Path(__file__).parent
FILES = re.compile(r"log\.json(\.\w+\.svg)?")


def campaign(count, tmp_path, seed=1):
    out = tmp_path / "reports.json"
    env = {**os.environ, "NESTSMITH_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    program = [sys.executable, str(HERE / "hostile.py"), str(count), str(seed), str(out)]
    r = subprocess.run(program, capture_output=True, text=True, env=env, timeout=7200)
    assert r.returncode == 0, r.stderr[-2000:]
    reports = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(reports) == count
    return reports


def check(reports, least):
    """`least`: so many programs were built, and so many records refused by the name of a bound."""
    bad = {r["name"]: why for r in reports if (why := wrong(r))}
    assert not bad, f"{len(bad)} of {len(reports)}: {json.dumps(bad, indent=1)[:4000]}"
    made = [f for r in reports for f in r["files"] if not FILES.fullmatch(f)]
    assert made == [] and not os.path.exists("/tmp/pwned"), made
    done = collections.Counter(p["part"] for r in reports for p in r["parts"] if "result" in p)
    named = {m for r in reports for p in r["parts"] for m in re.findall(r"\(limit [\"'](\w+)[\"']\)", p.get("text", ""))}
    assert done["build"] + done["operator"] >= least and len(named) >= min(least, 10), (done, named)


@pytest.mark.parametrize("count,least", [(12, 1), full(30, 3)])
def test_hostile_records(tmp_path, count, least):
    check(campaign(count, tmp_path), least)


def test_hostile_products(tmp_path):
    """Records that ask for tensor cores, with any numbers, among other steps before and behind: a program or one clear error."""
    r, ends = random.Random(1), collections.Counter()
    a, b = te.placeholder((40, 64), "float16", name="a"), te.placeholder((64, 48), "float16", name="b")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((40, 48), lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k), name="c")
    dag = auto_scheduler.ComputeDAG([a, b, te.compute((40, 48), lambda i, j: te.max(c[i, j], te.const(0.0)), name="d")])
    cuda = _core.Target("cuda", sm=90)
    for _ in range(400):
        state = _core.State(dag, "[]")
        wanted = [product_step(r)] + ([["CA", 2, 3, r.choice([1, 1, 1, 0])]] if r.random() < 0.8 else [])
        for _ in range(r.choice([0, 0, 1, 4])):
            wanted.insert(r.randrange(len(wanted) + 1), r.choice([product_step, step])(r))
        for s in wanted:
            try:
                state.apply(*s)
            except (ValueError, TypeError, OverflowError) as e:
                assert type(e) not in (UnicodeEncodeError, UnicodeDecodeError)
                ends["no step"] += s[0] == "MM"
        record = own(auto_scheduler.SearchTask(compute_dag=dag, workload_key="k", target="llvm"), [])
        who = record["i"][0]
        line = _core.record_text(*who[:2], tuple(who[2]), *who[3:], state.steps(), [1e-3], 0, 0.1, 1, "v0.6")
        again = _core.State(dag, _core.record_parse(line)[6])
        assert again.steps() == state.steps()
        try:
            source, _ = _core.candidate_source(again.infer_bounds(), cuda, 0)
            ends["program" if "mma.sync" in source else "other"] += 1
        except ValueError:
            ends["refused"] += 1
    assert min(ends[x] for x in ("program", "refused", "no step")) > 20, ends


@pytest.mark.full
@pytest.mark.long
def test_a_thousand_hostile_records(tmp_path):
    check(campaign(1000, tmp_path), 100)


# ---- the bounds ----


def test_every_bound_is_far_from_what_was_seen():
    limits = _core.limits()
    near = {n: (most, seen) for n, (most, seen, _) in limits.items() if most < 15 * seen}
    assert set(near) == {"compile_record"} and near["compile_record"][0] >= 8 * near["compile_record"][1]


def test_the_page_on_logs_lists_the_bounds():
    page = (HERE.parents[1] / "docs" / "logs.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", page, re.M))
    assert {k: int(v.replace(",", "")) for k, v in rows.items()} == {k: v[0] for k, v in _core.limits().items()}


@pytest.fixture(scope="module")
def world():
    mod, params = testing.mlp.get_workload(1)
    tasks, _ = auto_scheduler.extract_tasks(mod["main"], params, "llvm")
    return mod, params, tasks


STEPS = {  # product of stage 2, 1 x 128, over 784
    "steps": [["CR", 2]] * 2049,
    "list": [["RE", 2, list(range(1025))]],
    "iterators": [["SP", 2, 0, 1, [1] * 99, 1]] * 11,
    "split": [["SP", 2, 1, 128, [65536, 65536], 1]],
    "stages": [["CHW", 2, "global"]] * 65,
    "unroll_step": [["PR", 2, 0, "auto_unroll_max_step$16385"]],
    "vthreads": [["SP", 2, 1, 128, [2048], 1], ["AN", 2, 2, 4]],
    "temporaries": [["SA", 2, 0, 2**31 - 1, 0]],
    "memory": [["SP", 2, 0, 1, [1] * 99, 1], ["FU", 2, list(range(100))]] * 20,
}
LINES = {
    "line": lambda r: json.dumps(r)[:-1] + ', "x": "' + "a" * (1 << 20) + '"}',
    "nesting": lambda r: json.dumps(r)[:-1] + ', "x": ' + "[" * 128 + "]" * 128 + "}",
    "text": lambda r: json.dumps({**r, "v": "v0.6 " + "x" * 16384}),
    "inputs": lambda r: json.dumps({**r, "i": [[*r["i"][0][:5], ["x"] * 1025], r["i"][1]]}),
    "costs": lambda r: json.dumps({**r, "r": [[1.0] * 4097, *r["r"][1:]]}),
}


@pytest.mark.parametrize("name", [*STEPS, *LINES])
def test_a_bound_is_named(name, world, tmp_path):
    """With its value and what was asked for; a line that breaks it is reported with its number and its file."""
    _, _, tasks = world
    record = own(tasks[0], STEPS.get(name, []))
    most = _core.limits()[name][0]
    tells = rf'(\d+ .*; allowed are {most}|takes more than {most} bytes of memory.*) \(limit "{name}"\)'
    if name in LINES:
        path = tmp_path / "log.json"
        path.write_text(LINES[name](record) + "\n")
        with pytest.raises(ValueError, match=rf"log\.json holds no tuning record \(line 1: malformed record: .*{tells}"):
            list(auto_scheduler.load_records(path))
    else:
        with pytest.raises(ValueError, match=tells):
            state = _core.State(tasks[0].compute_dag, json.dumps(record["i"][1][1])).infer_bounds()
            _core.candidate_source(state, tasks[0].engine_target(), 0)


def test_steps_that_teach_a_model_or_a_search_are_bounded(world):
    """A model and a search replay a record's steps without showing the state to anybody."""
    task, steps = world[2][0], json.dumps(STEPS["memory"] * 15)
    model, policy = auto_scheduler.XGBModel(seed=1), auto_scheduler.SketchPolicy(task, verbose=0)
    for take in (
        lambda s: model.engine.add(model._task(task), s, 1e-3),
        lambda s: policy.engine.report(s, 1e-3, True),
        lambda s: policy.engine.hint(s),
        lambda s: policy.engine.check(s),
    ):
        take("[]")
        with pytest.raises(ValueError, match='step .* bytes of memory to replay and lower .limit "memory".'):
            take(steps)


def test_what_can_be_replayed_may_be_too_large_to_lower(world):
    """A state under the bound, whose text would be beyond it, wherever it is lowered."""
    task = world[2][0]
    steps = STEPS["memory"][:2] * 2 + [["SP", 2, 0, 1, [1] * 25, 1]]
    state = _core.State(task.compute_dag, json.dumps(steps))
    for layout in (0, 2):
        with pytest.raises(ValueError, match='takes more than .* bytes of memory .* .limit "memory".'):
            _core.candidate_source(state, task.engine_target(), layout)
    assert 'limit "memory"' in auto_scheduler.SketchPolicy(task, verbose=0).engine.check(state)[1]
    log = auto_scheduler.LocalBuilder().build([auto_scheduler.MeasureInput(task, auto_scheduler.State(state, task.compute_dag))])
    assert 'limit "memory"' in str(log[0].error_msg)


def test_unrolling_on_a_gpu_is_bounded():
    """Where loops are written out, before memory is used for them."""
    x = te.placeholder((64, 64, 64), name="x")
    y = te.compute((64, 64, 64), lambda i, j, k: x[i, j, k] * 2, name="y")
    s = te.create_schedule(y.op)
    i, j, k = s[y].op.axis
    s[y].bind(i, te.thread_axis("blockIdx.x"))
    outer, inner = s[y].split(j, factor=32)
    s[y].bind(outer, te.thread_axis("threadIdx.x"))
    for axis in (inner, k):
        s[y].unroll(axis)
    assert "threadIdx" in ns.lower(s, [x, y]).astext()
    z = te.compute((64, 4096, 64), lambda i, j, k: x[i, 0, k] * 2, name="z")
    s = te.create_schedule(z.op)
    i, j, k = s[z].op.axis
    s[z].bind(i, te.thread_axis("blockIdx.x"))
    s[z].bind(s[z].split(k, factor=1)[1], te.thread_axis("threadIdx.x"))
    s[z].unroll(j)
    s[z].unroll(s[z].leaf_iter_vars[2])
    with pytest.raises(ValueError, match='262144 statements after unrolling; allowed are 65536 .limit "statements".'):
        _core.program(s._core, [x, z], ns.target.Target("cuda -arch=sm_90").engine(), "f")


def test_marks_of_a_cpu_program_are_wishes(world):
    """A loop that would be too long written out stays a loop: the program is right, and soon compiled."""
    _, _, tasks = world
    state = _core.State(tasks[0].compute_dag, json.dumps([["AN", 2, 1, 4], ["SP", 2, 2, 784, [112], 1], ["AN", 2, 3, 1]]))
    source, _ = _core.candidate_source(state.infer_bounds(), tasks[0].engine_target(), 0)
    assert sum(int(n) for n in re.findall(r"NS_UNROLL\((\d+)\)", source)) < 4096


# ---- compile time ----

SLOW = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
if [ -e "${0%/*}/busy" ]; then while :; do :; done; fi
exec cc -x c -shared -fPIC -w -o "$2" "$3" -lm
"""


def test_the_compile_limit_names_the_kernel(world, tmp_path, monkeypatch):
    """A recorded schedule, all that is not in the cache, keeps the compiler busy."""
    mod, params, tasks = world
    (tmp_path / "cc").write_text(SLOW)
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setenv("NESTSMITH_CACHE_DIR", str(tmp_path / "cache"))

    def build():
        with ns.transform.PassContext(opt_level=3):
            return relay.build(mod, target="llvm", params=params)

    build()  # the default schedules are in the cache now
    (tmp_path / "busy").touch()
    build()
    monkeypatch.setenv("NESTSMITH_BUILD_TIMEOUT", "1")
    log = tmp_path / "log.json"
    log.write_text(json.dumps(own(tasks[0], [["AN", 2, 1, 4]])) + "\n")
    with auto_scheduler.ApplyHistoryBest(str(log)):
        with pytest.raises(RuntimeError, match=r"fused_nn_dense_add_nn_relu: compiling took longer than 1 s.*NESTSMITH_BUILD_TIMEOUT"):
            build()
    sch, args = tasks[0].apply_best(str(log))
    with pytest.raises(RuntimeError, match=r"my_kernel: compiling took longer than 1 s.*without the record it gets the default one"):
        ns.build(sch, args, "llvm", name="my_kernel")
    monkeypatch.setenv("NESTSMITH_BUILD_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="NESTSMITH_BUILD_TIMEOUT is 'soon'; it must be a number of seconds, 0 for no limit"):
        build()


def test_nvrtc_is_ended(monkeypatch):
    """NVRTC runs inside of the process that calls it: a program of a network is given to one that can be ended."""
    target = ns.target.Target("cuda -arch=sm_90")
    there, why = _core.build_available(target.engine())
    if not there:
        pytest.skip(why)
    monkeypatch.setenv("NESTSMITH_BUILD_TIMEOUT", "0.2")
    monkeypatch.setenv("NESTSMITH_CACHE_DIR", "")
    body = "\n".join(f"a[{i}] = b[{i}] * a[{i * 7 % 4096}] + sinf(b[{i + 1}]);" for i in range(20000))
    with pytest.raises(RuntimeError, match="my_kernel: compiling took longer than 0.2 s of processor time"):
        ns.driver.compile_source(target, f'extern "C" __global__ void k(float *a, float *b) {{ {body} }}', "my_kernel")
    monkeypatch.setenv("NESTSMITH_BUILD_TIMEOUT", "100")
    with pytest.raises(RuntimeError, match="my_kernel: NVRTC failed"):
        ns.driver.compile_source(target, "no program", "my_kernel")
    binary, _ = ns.driver.compile_source(target, 'extern "C" __global__ void k(float *a) { a[0] = 1; }', "my_kernel")
    assert len(binary) > 500


# ---- texts ----


def test_texts_cannot_talk_to_a_terminal(world):
    _, _, tasks = world
    line = json.dumps(own(tasks[0], []))
    for bad in ("\\u001b[31m", "\\u0007", "\\u009b31m", "\\u007f"):
        with pytest.raises(ValueError, match="a text holds a control character"):
            measure_record.load_record_from_string(line.replace("v0.6", "v0.6 " + bad))
    measure_record.load_record_from_string(line.replace("v0.6", "v0.6 é ключ 日本"))


def test_messages_about_foreign_bytes():
    """A text that is cut inside of a character is still told."""
    for k in range(48, 64):
        with pytest.raises(ValueError, match="no valid JSON") as caught:
            _core.record_parse("{" + "a" * k + "é" * 10)
        assert not isinstance(caught.value, UnicodeError)


def test_a_record_computes_what_its_task_does(world, tmp_path):
    """A pragma that leaves a part of the program out is for experiments with a schedule, and no record is one."""
    _, _, tasks = world
    line = attacks(own(tasks[0], []))["pragma skip"]
    with pytest.raises(ValueError, match="debug_skip_region"):
        measure_record.load_record_from_string(line)
    _core.State(tasks[0].compute_dag, json.dumps([["PR", 2, 0, "debug_skip_region"]]))


# ---- records that are run, and calls that a key stands for ----


def test_a_log_is_verified_whatever_is_in_it(world, tmp_path):
    """Each best record gets a verdict."""
    _, _, tasks = world
    task = tasks[0]
    padded = [["SP", 2, 1, 128, [2**24], 1], ["SP", 2, 3, 784, [2**24], 1]]  # 2^48 iterations, but for their guards
    cases = [(STEPS["vthreads"], "llvm -keys=cpu", "limit"), (padded, "llvm -keys=cpu", "right"), ([], "llvm -keys=cpu", "right"),
             (STEPS["temporaries"], "llvm -keys=cpu", "limit"), ([], "abacus", "unknown target")]  # fmt: skip
    for k, (steps, target, verdict) in enumerate(cases):
        record, path = own(task, steps), tmp_path / f"{k}.json"
        record["i"][0][1] = target
        path.write_text(json.dumps(record) + "\n")
        runner = auto_scheduler.LocalRunner(timeout=2, min_repeat_ms=1)
        (row,) = auto_scheduler.log_verify.verify([str(path)], runner=runner)
        assert verdict in row["verdict"], (steps, row["verdict"])
        runner.close()


@auto_scheduler.register_workload("hostile_sum")
def sum_of(n):
    x = te.placeholder((n + 0,), name="x")
    return [x, te.compute((n,), lambda i: x[i] + 1, name="y")]


@pytest.mark.parametrize("arguments", ["", ', "x"', ", 1, 2, 3", ", [1]", ", null", ", -1", ", 1e300"])
def test_a_key_with_other_arguments(arguments, world, tmp_path):
    """A registered function is called with what the log says: its error is told as the record's."""
    record = own(world[2][0], [])
    record["i"][0][0] = f'["hostile_sum"{arguments}]'
    inp, _ = measure_record.load_record_from_string(json.dumps(record))
    with pytest.raises(ValueError):
        auto_scheduler.recover_measure_input(inp)
    path = tmp_path / "log.json"
    path.write_text(json.dumps(record) + "\n")
    (row,) = auto_scheduler.log_verify.verify([str(path)])
    assert row["verdict"] == "unknown key"


def test_targets_of_other_packages_are_kept(world, tmp_path):
    """The tools sort records for targets that are not known here; history and tuning leave them out."""
    ours, path, out = own(world[2][0], []), tmp_path / "log.json", tmp_path / "out.json"
    theirs = own(world[2][0], [])
    theirs["i"][0][1] = "hexagon -mcpu=v68"
    path.write_text("".join(json.dumps(r) + "\n" for r in (theirs, ours)))
    measure_record.distill_record_file(str(path), str(out))
    assert [i.task.target_text.split()[0] for i, _ in auto_scheduler.load_records(out)] == ["hexagon", "llvm"]
    with auto_scheduler.ApplyHistoryBest(str(path)) as history:
        assert list(history.best) == ["llvm"]
