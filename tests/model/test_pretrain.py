"""Trees that start from earlier runs, from the estimate, or from another package; schedules that travel between tasks."""

import gzip
import json
import math
import sys

import numpy as np
import pytest
from test_forest import load_pilot, pick

from nestsmith import _core, auto_scheduler, pretrain, te
from nestsmith.auto_scheduler import learned_model, make_cost_model
from nestsmith.auto_scheduler.relatives import Relatives, fitted

ENTRIES, TIME = 212, 164 + 41
NETWORK = "mlp:batch_size=1,num_classes=10,image_shape=1x4x4"


@auto_scheduler.register_workload
def pretrain_matmul(n, tail):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    r = te.reduce_axis((0, n), name="r")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    args, out = [a, b], c

    def add(x, d, k):
        return te.compute((n, n), lambda i, j: x[i, j] + d[j], name=f"add{k}")

    for k in range(tail):
        args.append(te.placeholder((n,), name=f"bias{k}"))
        out = add(out, args[-1], k)
    return [*args, out]


def task_of(n=64, tail=0, target="llvm"):
    return auto_scheduler.SearchTask(func=pretrain_matmul, args=(n, tail), target=target)


def measured(task, seed=3, count=40):
    """States with made-up times: the estimate."""
    policy = auto_scheduler.SketchPolicy(task, seed=seed, verbose=0)
    states = policy.sample_initial_population()[:count]
    score = np.array(auto_scheduler.AnalyticModel().predict(task, states))
    inputs = [auto_scheduler.MeasureInput(task, s) for s in states]
    return inputs, [auto_scheduler.MeasureResult([1e-6 / float(x)], 0, "", 0.1, 0) for x in score]


def base_file(path, sign=1.0):
    """A base of two tasks whose times follow the estimate; sign -1: run against it."""
    learner = _core.Learner(1)
    for n in (32, 128):
        task = task_of(n)
        number = learner.task(task.engine_policy())
        for i, r in zip(*measured(task, count=60)):
            learner.add(number, i.state.state_object, 1e-6 * (r.costs[0] / 1e-6) ** sign)
    batch = learner.batch()
    forest = pretrain.train(batch, trees=60, prior=False, entries=1)
    pretrain.save(forest, path, {"records": len(batch[2])})
    return forest, batch


# ---- files ----
@pytest.mark.parametrize("name", ["base.acm", "base.acm.gz"])
def test_file(tmp_path, name):
    forest, (rows, first, _, _) = base_file(tmp_path / name)
    raw = (tmp_path / name).read_bytes()
    raw = gzip.decompress(raw) if name.endswith("gz") else raw
    assert raw[:4] == b"ACM1" and int.from_bytes(raw[8:12], "little") == 3
    (tmp_path / "plain").write_bytes(raw)
    again = _core.Forest.load(str(tmp_path / "plain"))
    assert again.info == '{"records": 120}'
    assert np.array_equal(again.score(rows, first), forest.score(rows, first))


def test_damaged_files(tmp_path):
    path = tmp_path / "base.acm.gz"
    base_file(path)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ValueError, match="damaged"):
        learned_model.XGBModel(base=str(path)).predict(task_of(), [])
    with pytest.raises(FileNotFoundError, match="no cost model file"):
        learned_model.XGBModel(base=str(tmp_path / "none")).predict(task_of(), [])


# ---- the base in a run ----
def rank_correlation(x, y):
    rank = [np.argsort(np.argsort(v)) for v in (x, y)]
    return np.corrcoef(*rank)[0, 1]


def test_base_ranks_before_the_first_record(tmp_path):
    base_file(tmp_path / "b")
    task = task_of()
    inputs, results = measured(task)
    model = learned_model.XGBModel(seed=1, base=str(tmp_path / "b"))
    speed = [1 / r.costs[0] for r in results]
    assert rank_correlation(model.predict(task, [i.state for i in inputs]), speed) > 0.6


@pytest.mark.parametrize("sign, dropped", [(1.0, False), (-1.0, True)])
def test_a_misleading_base_is_dropped(tmp_path, sign, dropped):
    base_file(tmp_path / "b", sign)
    task = task_of()
    inputs, results = measured(task)
    model = learned_model.XGBModel(seed=1, base=str(tmp_path / "b"))
    model.update(inputs[:15], results[:15])
    assert model.dropped() == []  # too few to judge
    model.update(inputs[15:], results[15:])
    assert model.dropped() == ([task.workload_key] if dropped else [])
    assert model.evaluate(inputs, results)["pairwise"] > 0.9
    other = task_of(256)  # not judged yet: the base still speaks there
    inputs, results = measured(other)
    score = model.predict(other, [i.state for i in inputs])
    assert (rank_correlation(score, [1 / r.costs[0] for r in results]) > 0.3) == (not dropped)


def test_base_survives_training_and_saving(tmp_path):
    base_file(tmp_path / "b")
    task = task_of()
    inputs, results = measured(task)
    model = learned_model.XGBModel(seed=1, base=str(tmp_path / "b"))
    model.update(inputs, results)
    states = [i.state for i in inputs]
    first = model.predict(task, states)
    model.save(str(tmp_path / "m"))
    again = learned_model.XGBModel(seed=2)
    again.load(str(tmp_path / "m"))
    assert rank_correlation(first, again.predict(task, states)) > 0.99


def test_same_bytes_for_any_number_of_threads(tmp_path):
    data = pick(load_pilot(), np.arange(400))
    files = []
    for threads in (1, 2):
        f = _core.Forest.train(*data, trees=20, states=0.6, entries=0.3, seed=5, threads=threads)
        f.save(str(tmp_path / str(threads)))
        files.append((tmp_path / str(threads)).read_bytes())
    assert files[0] == files[1]


def test_drawn_states_and_entries_learn():
    data = load_pilot()
    held = np.isin(data[2], [0, 1])
    part, test = pick(data, np.flatnonzero(~held)[::4]), pick(data, np.flatnonzero(held))
    f = _core.Forest.train(*part, trees=100, depth=4, states=0.6, entries=0.3)
    assert _core.model_metrics(*test, f.score(test[0], test[1]))["pairwise"] > 0.80
    for bad in ({"states": 0.0}, {"entries": 1.5}):
        with pytest.raises(ValueError, match="shares of states and entries"):
            _core.Forest.train(*part, **bad)


def test_start_from_the_estimate():
    """A model of 20 records orders new states no worse than the estimate it starts from."""
    rng = np.random.default_rng(2)
    rows = rng.random((220, ENTRIES), np.float32)
    rows[:, TIME] = rng.uniform(8, 16, 220)
    cost = 2.0 ** rows[:, TIME].astype(float) * (1 + 0.2 * rng.random(220))
    first, task = np.arange(221, dtype=np.int32), np.zeros(220, np.int32)
    small = (rows[:20], first[:21], task[:20], cost[:20])
    got = []
    for prior in (False, True):
        f = _core.Forest.train(*small, prior=prior)
        got.append(_core.model_metrics(rows[20:], first[:201], task[20:], cost[20:], f.score(rows[20:], first[:201])))
    assert got[1]["pairwise"] > 0.93 and got[1]["pairwise"] > got[0]["pairwise"]
    with pytest.raises(ValueError, match="start: has 3 elements"):
        _core.Forest.train(*small, start=np.zeros(3))


# ---- the command ----
def test_command(tmp_path, capsys):
    tasks = pretrain.network_tasks(NETWORK, auto_scheduler.SearchTask(func=pretrain_matmul, args=(8, 0), target="llvm").target)
    log = tmp_path / "log.json"
    for t in tasks:
        inputs, results = measured(t, count=20)
        auto_scheduler.save_records(str(log), inputs, results)
    with open(log, "a") as f:
        f.write('{"i": [["[\\"unknown\\"]", "llvm"], [[], []]], "r": [[1.0], 0, 0, 0], "v": "v0.6"}\nnot JSON\n')
    out = tmp_path / "b.acm.gz"
    args = ["--target", "llvm", "--network", NETWORK, "--log", str(log), "--out", str(out), "--device", "test"]
    assert pretrain.main(args) == 0
    text = capsys.readouterr().out
    assert f"{20 * len(tasks)} records of {len(tasks)} tasks, 2 skipped" in text
    raw = gzip.decompress(out.read_bytes())
    (tmp_path / "plain").write_bytes(raw)
    info = json.loads(_core.Forest.load(str(tmp_path / "plain")).info)
    assert info["device"] == "test" and len(info["tasks"]) == len(tasks) and "pairwise" in info["held_out_by_task"]
    model = learned_model.XGBModel(base=str(out))
    assert len(model.predict(tasks[0], [measured(tasks[0])[0][0].state])) == 1
    assert pretrain.main([*args, "--exclude", NETWORK]) == 1
    assert pretrain.main([*args[:2], "--network", "nonet", *args[4:]]) == 1
    assert "is not in nestsmith.relay.testing" in capsys.readouterr().err


def test_packaged_file():
    path = pretrain.packaged(task_of(target="cuda -arch=sm_90").target)
    if path is None:
        pytest.skip("no file for this class of device in this package")
    assert len(gzip.decompress(open(path, "rb").read())) <= 8 << 20
    model = learned_model.XGBModel(base="auto", seed=1)
    task = task_of(128, target="cuda -arch=sm_90")
    inputs, results = measured(task)
    score = model.predict(task, [i.state for i in inputs])
    assert rank_correlation(score, [1 / r.costs[0] for r in results]) > 0.3
    assert pretrain.packaged(task_of().target) is None


# ---- other models ----
def test_xgb_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ImportError, match="pip install xgboost"):
        make_cost_model("xgb")


def test_xgb_trees_score_alike_in_the_engine():
    xgboost = pytest.importorskip("xgboost")
    from nestsmith.auto_scheduler.xgb_model import forest_of

    rows, first, task, cost = pick(load_pilot(), np.arange(300))
    booster = xgboost.train({"max_depth": 5, "base_score": 0.0}, xgboost.DMatrix(rows, np.repeat(cost, np.diff(first))), 10)
    mine = forest_of(booster, rows.shape[1]).score(rows, np.arange(len(rows) + 1, dtype=np.int32))
    assert np.allclose(mine, booster.predict(xgboost.DMatrix(rows)), rtol=1e-5, atol=1e-7)


def test_forests_from_nodes_are_checked():
    def one(entry, left):
        zero = np.zeros(1, np.int32)
        return _core.Forest.from_nodes(zero, np.array(entry, np.int32), np.ones(len(entry), np.float32), np.array(left, np.int32), 4)

    assert one([0, -1, -1], [1, 0, 0]).n_trees == 1
    for entry, left in (([0, -1], [1, 0]), ([0, -1, -1], [0, 0, 0]), ([9, -1, -1], [1, 0, 0])):
        with pytest.raises(ValueError, match="not well-formed"):
            one(entry, left)


# ---- relatives ----
@pytest.mark.parametrize("target", ["llvm", "cuda -arch=sm_90"])
def test_schedules_travel(target):
    tasks = [task_of(64, tail, target) for tail in (0, 1, 2)] + [task_of(32, 1, target)]
    relatives = Relatives(tasks)
    assert relatives.of(1) == [2] and relatives.of(2) == [1] and relatives.of(3) == []
    states = auto_scheduler.SketchPolicy(tasks[1], seed=1, verbose=0).sample_initial_population()[:20]
    policy = auto_scheduler.SketchPolicy(tasks[2], seed=1, verbose=0)
    for s in states:
        there = relatives.transplant(1, 2, s)
        assert there is not None and policy.engine.check(there)[0]
        assert relatives.transplant(2, 1, there).steps() == s.state_object.steps()
        policy.hint(there)
    assert policy.propose(8)


@pytest.mark.parametrize("target", ["llvm", "cuda -arch=sm_90"])
@pytest.mark.parametrize(("here", "there"), [(48, 6), (6, 48), (48, 20)])
def test_schedules_fit_other_sizes(target, here, there):
    """Splits that would no longer cut their loops evenly get other lengths, all others stay, and a batch begins with what came so."""
    old, new = task_of(here, 1, target), task_of(there, 1, target)
    policy = auto_scheduler.SketchPolicy(new, seed=1, verbose=0)
    given = auto_scheduler.SketchPolicy(old, seed=1, verbose=0).sample_initial_population()[:20]
    states = [fitted(new.compute_dag, s) for s in given]
    for was, s in zip(given, states, strict=True):
        assert policy.engine.check(s) == (True, None)
        pairs = list(zip(json.loads(was.state_object.steps()), json.loads(s.steps()), strict=True))
        assert [a for a, _ in pairs if a[0] != "SP"] == [b for _, b in pairs if b[0] != "SP"]
        for a, b in pairs:
            if a[0] == "SP" and a[3] and b[3] and a[3] % math.prod(a[4]) == 0:
                assert b[3] % math.prod(b[4]) == 0 and (b[4] == a[4] or b[3] % math.prod(a[4]) != 0)
    for s in states[:2]:
        policy.hint(s, first=True)
    batch = [s.state_object.steps() for s in policy.propose(8)]
    assert batch[:2] == list(dict.fromkeys(s.steps() for s in states[:2])) and len(set(batch)) == 8
    a = te.placeholder((there,), name="A")
    assert fitted(auto_scheduler.ComputeDAG([a, te.compute((there,), lambda i: a[i] + 1.0)]), given[0]) is None
    with pytest.raises(ValueError, match="32-bit"):  # a product of 2 ** 64
        _core.State(new.compute_dag, json.dumps([["SP", 2, 0, there, [2**32, 2**32], 1]]), fit=True)


def test_hints_are_proposed():
    """A hinted state whose score is the best by far is measured next, once."""
    task = task_of()
    states = auto_scheduler.SketchPolicy(task, seed=7, verbose=0).sample_initial_population()
    mine = states[0].state_object

    class Likes(auto_scheduler.PythonBasedModel):
        def predict(self, task, batch):
            return [1.0 if s.state_object.steps() == mine.steps() else 1e-3 for s in batch]

        def update(self, inputs, results):
            pass

    params = {"evolutionary_search_population": 32, "evolutionary_search_num_iters": 1, "sample_init_min_population": 8}
    policy = auto_scheduler.SketchPolicy(task, Likes(), params=params, seed=1, verbose=0)
    policy.hint(mine)
    assert policy.propose(4)[0].state_object.steps() == mine.steps()
    assert mine.steps() not in [s.state_object.steps() for s in policy.propose(4)]


def test_batches_spread_over_tilings():
    task = task_of(128, target="cuda -arch=sm_90")
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.AnalyticModel(), params={"lane_products": 0}, seed=1, verbose=0)
    for _ in range(2):
        tilings = []
        for s in policy.propose(8):
            steps = json.loads(s.state_object.steps())
            tilings.append(str([(x[1], x[2], x[4]) for x in steps if x[0] == "SP" and len(x[4]) == 4]))
        assert len(tilings) == 8 and max(map(tilings.count, tilings)) == 1
