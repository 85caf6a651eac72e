"""Logs: tools on the command line, writing together, full disks, curves, the notebook's view."""

import gzip
import json
import logging
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from matmuls import tasks_of
from onnx import helper, numpy_helper

import nestsmith as ns
import nestsmith.log
from nestsmith import _core, auto_scheduler
from nestsmith.__main__ import main
from nestsmith.auto_scheduler import MeasureInput, MeasureResult, cost, log_files, log_tools, measure_record, notebook

DATA = Path(__file__).parent.parent / "data"
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))


def run(code, *args):
    env = dict(os.environ, PYTHONPATH=PACKAGE)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)], capture_output=True, text=True, env=env
    )


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "resnet.json"
    path.write_bytes(gzip.decompress((DATA / "tvm-resnet-18-NHWC-B1-cuda.json.gz").read_bytes()))
    return path


def line(key, cost, error=0, time=1700000000, **more):
    task = [json.dumps([key, [1, 4]]), "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0], "", 0, []]
    result = [[1e10 if error else cost], error, 0.5, time]
    return json.dumps({"i": [task, [[], []]], "r": result, "v": "v0.6", **more}) + "\n"


def costs(path):
    return [r.costs[0] for _, r in auto_scheduler.load_records(path)]


def test_modes(tmp_path, capsys):
    a, b, out = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "deep" / "out.json"
    a.write_text("# note\n" + line("k", 3.0, x={"cause": "none"}) + line("k", 0, error=4) + line("m", 5.0))
    b.write_text(line("k", 2.0) + line("m", 5.0) + line("z", 0, error=6))
    assert log_tools.main(["--mode", "merge", "--i", str(a), "-i", str(b), "--o", str(out)]) == 0
    assert len(costs(out)) == 5, "the repetition is dropped, failures stay"
    assert log_tools.main(["--mode", "best", "-i", str(out), "-o", str(out)]) == 0 and costs(out) == [2.0, 5.0]
    capsys.readouterr()
    assert log_tools.main(["--mode", "top", "-k", "5", "-i", str(a), "-i", str(b)]) == 0
    assert [json.loads(x)["r"][0][0] for x in capsys.readouterr().out.splitlines()] == [2.0, 3.0, 5.0, 5.0]
    assert log_tools.main(["--mode", "strip", "-i", str(a), "-o", str(out)]) == 0
    assert "#" not in out.read_text() and '"x"' not in out.read_text() and len(costs(out)) == 3
    assert log_tools.main(["--mode", "stats", "-i", str(a), "-i", str(b)]) == 0
    text = capsys.readouterr().out
    assert "3 tasks, 6 trials, 4 valid, 2 failed" in text
    assert "1 x run error" in text and "1 x build timeout" in text and "1 tasks have no valid record" in text
    rows = {json.loads(r["key"])[0]: r for r in log_tools.stats([a, b])}
    assert rows["k"]["curve"] == [(1, 3.0), (3, 2.0)] and rows["k"]["best_at"] == 3 and rows["z"]["best"] is None
    assert log_tools.main(["--mode", "stats", "-i", str(tmp_path / "none")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_command_line(log, tmp_path):
    for module in ("nestsmith.log", "nestsmith.auto_scheduler.measure_record"):
        r = subprocess.run(
            [sys.executable, "-m", module, "--mode", "distill", "-i", str(log), "-o", str(tmp_path / module)],
            capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=PACKAGE),
        )
        assert r.returncode == 0 and "24 records kept" in r.stderr, r.stderr
        assert len(costs(tmp_path / module)) == 24


def test_keys_of_another_release(log, tmp_path):
    """A log of release 0.14 gets this package's keys, its steps replay, and it goes back unchanged."""
    network = {"name": "resnet-18", "layout": "NHWC"}
    here, counts = log_tools.convert(log, False, network=network)
    assert counts == {"renamed": 24}
    own = tmp_path / "own.json"
    own.write_text("".join(here))
    back, counts = log_tools.convert(own, True, network=network)
    assert counts == {"renamed": 24}
    assert back == [x for x in log.read_text().splitlines(keepends=True) if x.startswith("{")]
    keys = [json.loads(json.loads(x)["i"][0][0])[0] for x in here]
    mapping = {json.loads(x)["i"][0][0]: json.dumps(["new", n]) for n, x in enumerate(here[:3])}
    (tmp_path / "map.json").write_text(json.dumps(mapping))
    assert log_tools.main(["--mode", "to-tvm", "-i", str(own), "-o", str(tmp_path / "m.json"),
                           "--mapping", str(tmp_path / "map.json")]) == 0
    renamed = [json.loads(i.task.workload_key)[0] for i, _ in auto_scheduler.load_records(tmp_path / "m.json")]
    assert renamed == ["new"] * 3 + keys[3:]


def test_names_beyond_ascii(tmp_path, monkeypatch):
    """Logs, caches, temporary folders and exported programs may have any name."""
    folder = tmp_path / "журнал é 日本"
    (folder / "tmp").mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    out = folder / "öffnen.json"
    pair = measure_record.load_record_from_string(line("ключ", 1.0))
    auto_scheduler.RecordToFile(out)([None], [pair[0]], [pair[1]])
    (found,) = auto_scheduler.load_records(out)
    assert json.loads(found[0].task.workload_key)[0] == "ключ"
    for mode in ("distill", "best", "merge", "strip", "stats"):
        assert log_tools.main(["--mode", mode, "-i", str(out), "-o", str(folder / f"{mode} ü.json")]) == 0
    assert costs(folder / "distill ü.json") == [1.0]
    cache = folder / "кэш"
    first, again = (ns._core.build("llvm", "int k;", 20, str(cache))[2] for _ in range(2))
    assert not first and again and len([f for f in os.listdir(cache) if f != ".lock"]) == 1  # of a sweep, now and then


def test_old_logs_become_new_ones(tmp_path):
    lines, counts = log_tools.convert(DATA / "tvm-old-formats.json", False)
    assert counts["kept"] == len(lines) >= 2
    assert all(json.loads(x)["v"] == "v0.6" and len(json.loads(x)["i"][0]) == 6 for x in lines)


def test_two_writers(tmp_path):
    out = tmp_path / "log.json"
    code = """
    import sys
    from nestsmith.auto_scheduler.log_files import append_text
    for _ in range(200):
        append_text(sys.argv[1], sys.argv[2] * 7)
    """
    env = dict(os.environ, PYTHONPATH=PACKAGE)
    writers = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(out), line(k, 1.0)], env=env) for k in "ab"
    ]
    assert [w.wait() for w in writers] == [0, 0]
    lines = out.read_text().splitlines()
    assert len(lines) == 2800
    owners = [json.loads(json.loads(x)["i"][0][0])[0] for x in lines]
    assert all(len(set(owners[k : k + 7])) == 1 for k in range(0, 2800, 7)), "batches stay together"


def test_full_disk(tmp_path):
    """With no room left the earlier records stay whole, tuning goes on, and what waited is written later."""
    r = run(
        """
        import resource, sys
        from nestsmith.auto_scheduler import RecordToFile, measure_record
        out, text = sys.argv[1:]
        pair = measure_record.load_record_from_string(text)
        text = measure_record.dump_record_to_string(*pair)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(len(text) * 5.5), resource.RLIM_INFINITY))
        log = RecordToFile(out)
        for _ in range(4):
            log([None], [pair[0]] * 2, [pair[1]] * 2)
        print(len(open(out).read()) / len(text))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        log([None], *[[x] for x in pair])
        print(len(open(out).read()) / len(text))
        """,
        tmp_path / "log.json", line("k", 1.0),
    )
    assert r.returncode == 0, r.stderr
    assert [float(x) for x in r.stdout.split()] == [4.0, 9.0]
    assert r.stderr.count("cannot be written (File too large)") == 1
    assert "can be written again: 4 records were written late" in r.stderr
    assert len(costs(tmp_path / "log.json")) == 9


def test_torn_line(tmp_path, caplog):
    out = tmp_path / "log.json"
    out.write_text(line("k", 1.0) + line("k", 2.0)[:50])
    with caplog.at_level(logging.INFO):
        assert costs(out) == [1.0] and "incomplete" in caplog.text
    log_files.append_text(out, line("k", 3.0))
    caplog.clear()
    assert costs(out) == [1.0, 3.0] and "1 broken lines were skipped (line 2)" in caplog.text


def test_a_tool_that_fails_leaves_its_output(tmp_path):
    out = tmp_path / "out.json"
    out.write_text(line("k", 1.0))
    r = run(
        """
        import resource, sys
        from nestsmith.auto_scheduler import log_tools
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        sys.exit(log_tools.main(["--mode", "strip", "-i", sys.argv[1], "-o", sys.argv[1]]))
        """,
        out,
    )
    assert r.returncode == 1 and "was not changed: File too large; free some space" in r.stderr
    assert out.read_text() == line("k", 1.0) and os.listdir(tmp_path) == ["out.json"]


def test_curves(log, tmp_path):
    own = tmp_path / "log.json"
    own.write_text(line("k", 0.003) + line("m", 0.004, time=1700000005) + line("k", 0.001, time=1700000009))
    key = json.loads(line("k", 1))["i"][0][0]
    for by, xs in (("trials", [2, 3]), ("time", [5, 9])):
        plot = auto_scheduler.plot_log(own, by, weights={key: 2})
        assert plot.curves[0] == ("weighted sum", [(xs[0], 10.0), (xs[1], 6.0)])
    assert auto_scheduler.plot_log(log).svg().count("<path") > 24
    assert log_tools.main(["--mode", "plot", "-i", str(own), "-o", str(tmp_path / "c.svg")]) == 0
    assert (tmp_path / "c.svg").read_text().endswith("</svg>\n")
    tsv = tmp_path / "total.tsv"
    row = "ElapsedTime(s)\t{}\tEstimatedLatency(ms)\t{}\tTrials\t{}\n"
    tsv.write_text(row.format(3, "N/A", 64) + row.format(9, "2.500", 128) + "ElapsedTime(s)\t12")
    assert auto_scheduler.plot_latency(tsv).curves == [("estimated total", [(128, 2.5)])]
    assert auto_scheduler.plot.Plot([], "trials").svg().endswith("</svg>\n")
    with pytest.raises(ValueError, match="by='x'"):
        auto_scheduler.plot_log(own, "x")


def test_disturbed_quick_records_are_the_best_in_no_tool(tmp_path, capsys):
    """Whatever their place in the log; where a task has no others they count, as they do for the build."""
    def marked(cost, stage):
        return line("k", cost, v=f"v0.6 stage={stage}{' disturbed' if stage == 'quick' else ''}")
    lines = [marked(0.001, "quick"), marked(0.004, "full"), marked(0.0005, "quick"), marked(0.003, "full")]
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (0, 2, 1, 3)):
        path = tmp_path / "log.json"
        path.write_text("".join(lines[i] for i in order) + line("m", 0.01, v="v0.6 stage=quick"))
        rows = {json.loads(r["key"])[0]: r for r in log_tools.stats(path)}
        assert rows["k"]["best"] == 0.003 and rows["m"]["best"] == 0.01 and rows["k"]["best_at"] == 1 + order.index(3)
        assert all(b < a for (_, a), (_, b) in zip(rows["k"]["curve"], rows["k"]["curve"][1:]))
        plot = dict(auto_scheduler.plot_log(path).curves)
        assert plot.pop("sum over tasks, weights 1")[-1][1] == pytest.approx(13.0)
        assert sorted(c[-1][1] for c in plot.values()) == pytest.approx([3.0, 10.0])
        key = json.loads(line("k", 1))["i"][0][0]
        assert auto_scheduler.load_best_record(path, key)[1].costs == [0.003]
        for mode in ("best", "distill"):
            assert log_tools.main(["--mode", mode, "-i", str(path), "-o", str(tmp_path / f"{mode}.json")]) == 0
            assert sorted(costs(tmp_path / f"{mode}.json")) == [0.003, 0.01], mode
            (tmp_path / f"{mode}.json").unlink()
        assert main(["inspect", str(path)]) == 0
        assert [x.split()[5] for x in capsys.readouterr().out.splitlines() if x.startswith("k 1 4")] == ["3"]


class Layer:
    """What `plot_log` asks of a task."""

    def __init__(self, *names):
        keys = [json.loads(line(n, 1))["i"][0][0] for n in names]
        self.workload_key, self.layer_keys = keys[0], keys


def test_the_sum_of_a_plot_is_the_network(tmp_path):
    """Where it is known: layers as often as they occur, each in the fastest of its forms, and nobody else's tasks."""
    path = tmp_path / "log.json"
    rows = (("a", 0.004), ("b", 0.003), ("other", 0.5), ("b2", 0.002), ("a2", 0.009))
    path.write_text("".join(line(n, c) for n, c in rows))
    tasks = [Layer("a", "a2"), Layer("b", "b2")]
    plot = auto_scheduler.plot_log(path, tasks=tasks, weights=[3, 1])
    assert plot.curves[0] == ("network", [(2, 15.0), (4, 14.0)])
    assert auto_scheduler.plot_log(path, tasks=tasks, weights={tasks[0].workload_key: 3}).curves[0] == plot.curves[0]
    assert auto_scheduler.plot_log(path, tasks=tasks).curves[0] == ("network", [(2, 7.0), (4, 6.0)])
    assert auto_scheduler.plot_log(path).curves[0][0] == "sum over tasks, weights 1"
    assert auto_scheduler.plot_log(path, tasks=[Layer("none")]).curves[0][0] != "network"  # no result: no sum
    with pytest.raises(ValueError, match="weights has 1 numbers; tasks has 2"):
        auto_scheduler.plot_log(path, tasks=tasks, weights=[3])


def test_plots_know_the_network_of_a_model(tmp_path, log):
    """A file, or a test network by name."""
    x, w = helper.make_tensor_value_info("x", 1, (1, 8)), numpy_helper.from_array(np.ones((8, 4), "float32"), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("z", 1, (1, 4))], [w])
    helper.onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    tasks, weights = ns.log._tasks_of_model(str(tmp_path / "m.onnx"), "llvm", None, "float32")
    own = tmp_path / "log.json"
    rows = [json.loads(line("k", 0.5 + i)) for i in range(len(tasks) + 1)]
    for row, task in zip(rows, tasks):
        row["i"][0][0] = task.workload_key
    own.write_text("".join(json.dumps(r) + "\n" for r in rows))
    out = str(tmp_path / "p.svg")
    assert ns.log.main(["--mode", "plot", "-i", str(own), "-o", out, "--model", str(tmp_path / "m.onnx")]) == 0
    total = 1e3 * sum(w * (0.5 + i) for i, w in enumerate(weights))
    assert f">network {total:.4g}<" in Path(out).read_text()
    assert log_tools.main(["--mode", "plot", "-i", str(own), "-o", out, "--model", str(tmp_path / "m.onnx")]) == 1
    assert log_tools.main(["--mode", "plot", "-i", str(log), "-o", out, "--network", "mlp"]) == 0 and "network" not in Path(out).read_text()


def test_notebook_view():
    shown = []
    view = notebook.NotebookView(shown.append)
    view.update(1, "[1/2 <conv>]  trials 1/9")
    assert "&lt;conv&gt;" in shown[-1] and "<svg" not in shown[-1]
    view.say("task 3 is given up")
    view.point(1, None)
    view.point(2, 0.002)
    view.point(3, 0.001)
    view.point(4, 0.001)  # nothing new: not drawn again
    assert len(view.points) == 2 and shown[-1].count("<svg") == 2 and "given up" in shown[-1]
    view.finish(4, "the last")
    assert "the last" in shown[-1] and not notebook.in_notebook()


def damaged(data, rng):
    """A log after an accident: bytes changed, inserted and lost, here and there."""
    data = bytearray(data)
    for _ in range(rng.randrange(12)):
        at = rng.randrange(len(data))
        piece = rng.choice([b"\xff", b"\xed\xa0\x80", "é".encode(), b"\n", b"\r\n", b"# ", b'"', b"\n \n", b"\xf0\x9f\x98\x80", b"0"])
        data[at : at + rng.randrange(3)] = piece
    return bytes(data[: rng.randrange(len(data) // 2, len(data) + 1)])


def answers(history):
    """What a dispatch context knows, and what it counted."""
    best = {
        (kind, name, args): [(e.arch, e.model, e.rank, e.state.steps()) for e in entries]
        for kind, names in history.best.items()
        for name, by_args in names.items()
        for args, entries in by_args.items()
    }
    return best, history.holdings._of, history.holdings.records


def test_two_readers_of_a_log_agree(tmp_path):
    """The engine's index of a log and RecordReader, which reads it record by record, find the same in damaged logs."""
    rng, path = random.Random(5), tmp_path / "log.json"
    good = "".join(line(k, c, e) for k, c, e in (("k", 1.0, 0), ("m", 2.0, 0), ("k", 0.5, 0), ("z", 0, 4), ("é", 3.0, 0)) * 3)
    refused = 0
    for _ in range(200):
        path.write_bytes(damaged(good.encode(), rng))
        log = _core.TuneLog(path)
        try:
            pairs = list(auto_scheduler.RecordReader(path))
        except ValueError:
            refused += 1
            assert log.groups == [] and log.faults[0] != []
            continue
        groups = {}
        for inp, res in pairs:
            groups.setdefault((inp.task.workload_key, inp.task.target_text, inp.task.host_text), []).append(cost.rank_of(res))
        assert [g[:3] for g in log.groups] == list(groups)
        for (*_, valid, failed, rank, _), ranks in zip(log.groups, groups.values()):
            bad = ranks.count(cost.NOTHING)
            assert (valid, failed, rank) == (len(ranks) - bad, bad, min(ranks))
        whole, one_by_one = (answers(auto_scheduler.ApplyHistoryBest(x)) for x in (str(path), pairs))
        assert whole == one_by_one
        best = auto_scheduler.load_best_record(str(path))
        valid = [p for p in pairs if cost.rank_of(p[1]) != cost.NOTHING]
        if valid:
            first = min(valid, key=lambda p: cost.rank_of(p[1]))
            assert (best[0].state.steps(), best[1].costs) == (first[0].state.steps(), first[1].costs)
        else:
            assert best == (None, None)
        again = auto_scheduler.RecordReader(path).at(log.places(range(len(log.groups))))
        assert [(i.state.steps(), r.costs) for i, r in again] == [(i.state.steps(), r.costs) for i, r in pairs]
    assert refused < 100
    with pytest.raises(OSError, match="cannot be read: Is a directory"):
        _core.TuneLog(tmp_path)


def test_a_log_is_read_once_for_all_tasks(tmp_path, monkeypatch):
    """A run that goes on from a log preloads every policy from it; reading it anew for each took minutes."""
    log, read, made = tmp_path / "log.json", [], _core.TuneLog
    tasks = tasks_of(8, 16, 24)
    for t in tasks:
        state = t.compute_dag.get_init_state()
        measure_record.save_records(log, [MeasureInput(t, state)], [MeasureResult([1e-3], 0, "", 0.1, 0)])
    monkeypatch.setattr(_core, "TuneLog", lambda path: read.append(path) or made(path))
    preload = auto_scheduler.PreloadMeasuredStates(str(log))
    seen = []

    class Policy(auto_scheduler.SearchPolicy):
        def preload(self, inp, res):
            seen.append((inp.task.workload_key, res.costs))

    for t in tasks:
        Policy(t, [preload], verbose=0)
    assert seen == [(t.workload_key, [1e-3]) for t in tasks] and read == [str(log)]
    measure_record.save_records(log, [MeasureInput(tasks[0], state)], [MeasureResult([2e-3], 0, "", 0.1, 0)])
    Policy(tasks[0], [preload], verbose=0)
    assert seen[3:] == [(tasks[0].workload_key, [1e-3]), (tasks[0].workload_key, [2e-3])] and len(read) == 2
