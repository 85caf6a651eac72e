"""Tuners on computed costs: what they visit, what they find, the loop around them."""

import json
import logging
import math
import os
import random
import re
import time

import numpy as np
import pytest
from tuning_spaces import ASKED, computed, layer11_task, make, smooth

from nestsmith import _core, autotvm, te
from nestsmith.autotvm.tuner import (
    DropletTuner,
    GATuner,
    GridSearchTuner,
    ModelOptimizer,
    RandomTuner,
    SimulatedAnnealingOptimizer,
    Tuner,
    XGBoostCostModel,
    XGBTuner,
)
from nestsmith.autotvm.tuner.droplet_tuner import differ


def knob_tuner(task, **how):
    return XGBTuner(task, feature_type="knob", **how)


ALL = [RandomTuner, GridSearchTuner, lambda t: GATuner(t, pop_size=10), lambda t: knob_tuner(t, plan_size=16)]
NAMES = ["random", "grid", "ga", "xgb"]


def seconds(config):
    return 1e-3 * (1 + (config.index * 7) % 13)


# ---- what is visited ----


@pytest.mark.parametrize("make_tuner", ALL, ids=NAMES)
@pytest.mark.parametrize("filtered", [0, 1])
def test_every_point_is_visited_once(make_tuner, filtered):
    task = make("grid64", filtered)
    option = computed(seconds)
    make_tuner(task).tune(64, option)
    seen = option["runner"].seen
    assert sorted(seen) == [i for i in range(64) if task.config_space.is_index_valid(i)]
    assert len(seen) == (34 if filtered else 64)


@pytest.mark.parametrize("make_tuner", ALL, ids=NAMES)
def test_a_filter_is_asked_only_for_what_is_looked_at(make_tuner):
    task = make("sieve", 1000)
    ASKED.clear()
    make_tuner(task).tune(12, option := computed(seconds))
    assert len(set(option["runner"].seen)) == 12 and all(task.config_space.is_index_valid(i) for i in option["runner"].seen)
    assert len(ASKED) < 1000


@pytest.mark.parametrize("tuner", [RandomTuner, GridSearchTuner])
def test_ranges_of_indices(tuner):
    option = computed(seconds)
    t = tuner(make("grid64", 0), range_idx=(8, 15))
    assert t.visited_max == 8
    t.tune(64, option)
    assert sorted(option["runner"].seen) == list(range(8, 16)) and len(t.visited) == 8
    t = tuner(make("grid64", 1), range_idx=(8, 15))
    assert t.visited_max == 4
    t.tune(64, option := computed(seconds))
    assert sorted(option["runner"].seen) == [12, 13, 14, 15]
    for wrong in ((8, 64), (-1, 3), (9, 8)):
        with pytest.raises(AssertionError):
            tuner(make("grid64", 0), range_idx=wrong)


def test_grid_begins_with_the_first_allowed_index():
    for filtered, range_idx, first in ((0, None, 0), (1, None, 5), (1, (8, 15), 12)):
        t = GridSearchTuner(make("grid64", filtered), range_idx)
        assert t.next_batch(1)[0].index == first


def test_seeds_repeat_a_run():
    def run(seed):
        random.seed(seed)
        option = computed(smooth)
        GATuner(layer11_task(), pop_size=20).tune(60, option)
        return option["runner"].seen

    assert run(3) == run(3) != run(4)


# ---- what is found ----


def best_of(tuner, trials=256):
    tuner.tune(trials, computed(smooth, batch=32))
    return tuner.best_measure_pair[1].costs[0]


@pytest.mark.some(1)
@pytest.mark.parametrize("loss", ["rank", "reg", "rank-binary"])
def test_trees_find_better_ones_than_chance(loss):
    """In at least 9 of 10 seeds, on the space of a convolution's template."""
    wins = 0
    for seed in range(10):
        random.seed(seed)
        wins += best_of(knob_tuner(layer11_task(), loss_type=loss)) < best_of(RandomTuner(layer11_task()))
    assert wins >= 9


def test_breeding_finds_better_ones_than_chance():
    wins = 0
    for seed in range(10):
        random.seed(seed)
        wins += best_of(GATuner(layer11_task(), pop_size=30)) < best_of(RandomTuner(layer11_task()))
    assert wins >= 7


def test_droplets_run_downhill():
    task = make("grid64", 0)
    low = task.config_space.knob2point([5, 3])

    def hill(config):
        y, x = task.config_space.point2knob(config.index)
        return 1e-3 * (1 + (y - 5) ** 2 + (x - 3) ** 2)

    tuner = DropletTuner(task)
    tuner.tune(64, option := computed(hill))
    assert tuner.best_config.index == low and len(option["runner"].seen) == len(set(option["runner"].seen)) < 64


@pytest.mark.parametrize("freedom, t, p", [(1, 1.0, 0.5), (2, 1.0, 0.42265), (4, 2.776, 0.05), (5, 2.571, 0.05), (18, 2.101, 0.05)])
def test_students_test(freedom, t, p):
    n = freedom // 2 + 1  # two samples of n and freedom + 2 - n numbers whose statistic is t
    a, b = np.array([-1.0, 1.0] * n)[: n], np.array([-1.0, 1.0] * n)[: freedom + 2 - n]
    a, b = a - a.mean(), b - b.mean()
    spread = (np.var(a) * len(a) + np.var(b) * len(b)) / freedom * (1 / len(a) + 1 / len(b))
    far = b + t * math.sqrt(spread)
    if len(a) > 1 and len(b) > 1:
        assert differ(a, far, p * 1.01) and not differ(a, far, p * 0.99)


# ---- models ----


def test_a_plan_is_full_also_where_scores_are_negative():
    task = layer11_task()
    optimizer = SimulatedAnnealingOptimizer(task, n_iter=20, parallel_size=32)

    class Negative:
        calls = 0

        def predict(self, xs):
            self.calls += 1
            return -1.0 - np.asarray(xs, float)

    model, exclude = Negative(), {0, 1, 2}
    found = optimizer.find_maximums(model, 40, exclude)
    assert len(found) == len(set(found)) == 40 and not exclude & set(found) and found == sorted(found)
    assert model.calls <= 21  # all points of a round at once


def test_annealing_goes_on_where_it_ended():
    task = layer11_task()
    optimizer = SimulatedAnnealingOptimizer(task, n_iter=200, parallel_size=64)

    class Low:
        def predict(self, xs):
            return -np.abs(np.asarray(xs, float) - 40000)

    first = optimizer.find_maximums(Low(), 8, set())
    points = optimizer.points.copy()
    assert abs(first[0] - 40000) <= 50 and np.median(np.abs(points - 40000)) < 20000
    second = SimulatedAnnealingOptimizer(task, n_iter=200, parallel_size=64, persistent=False)
    assert second.find_maximums(Low(), 8, set(first)) and not set(second.find_maximums(Low(), 8, set(first))) & set(first)


def test_a_model_that_fails_says_so():
    class Broken:
        def predict(self, xs):
            raise KeyError("no model")

    class Short:
        def predict(self, xs):
            return [1.0]

    optimizer = SimulatedAnnealingOptimizer(layer11_task(), parallel_size=4)
    with pytest.raises(KeyError, match="no model"):
        optimizer.find_maximums(Broken(), 4, set())
    with pytest.raises(ValueError, match="gave 1 scores for 4"):
        optimizer.find_maximums(Short(), 4, set())


def test_the_most_different_ones_are_picked():
    space = make("grid64", 0).config_space
    at = [space.knob2point(k) for k in ([0, 0], [0, 1], [1, 1], [2, 0], [3, 3])]
    assert [at[i] for i in _core.pick_diverse(space._space, at, np.zeros(5), 3)] == [at[0], at[2], at[4]]
    assert list(_core.pick_diverse(space._space, at, np.array([0, 5.0, 0, 0, 0]), 1)) == [1]
    assert len(_core.pick_diverse(space._space, at, np.zeros(5), 9)) == 5


def test_children_share_digits_with_their_parents():
    space = layer11_task().config_space
    random.seed(5)
    parents = space.draw_ints(12)
    children = _core.genetic_next(space._space, parents, np.linspace(0, 1, 12), 40, 0.0, np.array(parents), 7)
    digits = [set(column) for column in zip(*map(space.point2knob, parents))]
    bred = [all(d in seen for d, seen in zip(space.point2knob(int(c)), digits)) for c in children]
    assert len(set(children)) == 40 and not set(children.tolist()) & set(parents) and sum(bred) >= 30


def test_the_average_recall_of_a_known_order():
    label = np.array([4.0, 3.0, 2.0, 1.0])
    # right order: place i has found i of the i + 1 best
    assert _core.average_recall(label, label, 4, 0.0) == pytest.approx((0 + 1 / 2 + 2 / 3 + 3 / 4) / 4)
    assert _core.average_recall(label, -label, 2, 0.0) == 0


def test_exact_trees_tell_neighbouring_values_apart():
    """A histogram of 64 bins cannot: the one value that is good lies between 200 others."""
    rows = np.arange(201, dtype=np.float32)[:, None]
    costs = np.where(rows[:, 0] == 77, 1e-3, 2e-3)
    first = np.arange(202, dtype=np.int32)
    forest = _core.Forest.train_template(rows, costs, "squared", recall=0, trees=100)
    score = forest.score(rows, first)
    assert score.argmax() == 77 and score[77] - np.sort(score)[-2] > 0.2
    coarse = _core.Forest.train(rows, first, np.zeros(201, np.int32), costs, depth=3).score(rows, first)
    assert coarse[77] in (coarse[76], coarse[78])


def test_training_ends_when_the_order_of_the_best_is_known():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 8, (128, 6)).astype(np.float32)
    costs = 1e-3 * (1 + rows[:, 0] + rows[:, 1])
    for loss in ("order", "squared"):
        forest = _core.Forest.train_template(rows, costs, loss, 16, 20, 2000)
        assert 1 <= forest.n_trees < 500
        score = forest.score(rows, np.arange(129, dtype=np.int32))
        assert np.corrcoef(np.argsort(np.argsort(-costs)), np.argsort(np.argsort(score)))[0, 1] > 0.9


def test_a_wider_row_than_any_before_trains_anew():
    task = autotvm.task.create("tests/widths", (16,), "llvm")
    model = XGBoostCostModel(task, "itervar")
    narrow = [i for i in range(10) if i % 2 == 0]
    model.fit(narrow, [1.0, 2.0, 3.0, 4.0, 5.0], 4)
    width = model.features.width
    assert len(model.predict([1, 3, 0])) == 3 and model.features.width > width
    assert model._width == model.features.width


@autotvm.template("tests/widths")
def widths(n):
    """Odd configurations have one loop more."""
    cfg = autotvm.get_config()
    cfg.define_knob("more", [False, True])
    cfg.define_split("tile", n, num_outputs=2)
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    if cfg["more"].val:
        s[b].split(b.op.axis[0], cfg["tile"].size[-1])
    cfg.add_flop(n)
    return s, [a, b]


# ---- learning from other tasks ----


def records(n, shape=(256, 14), failed=0):
    task = make("layer11", *shape)
    random.seed(1)
    found = task.config_space.draw_ints(n + failed)
    out = []
    for k, i in enumerate(found):
        config = task.config_space.get(i)
        res = autotvm.MeasureResult((smooth(config),), 4 if k >= n else 0, 0.1, time.time())
        out.append((autotvm.MeasureInput(task.target, task, config), res))
    return out


def test_history_needs_enough_good_records_of_the_same_template():
    for given, least, learnt in ((records(10), 10, True), (records(10), 11, False), (records(9, failed=5), 10, False)):
        tuner = knob_tuner(layer11_task())
        tuner.load_history(given, min_seed_records=least)
        assert (tuner.cost_model.base_model is not None) == learnt
        assert len(tuner.trials) == (tuner.plan_size if learnt else 0)
    other = make("grid64", 0)
    strange = [(autotvm.MeasureInput(other.target, other, other.config_space.get(i)), r) for i, (_, r) in enumerate(records(20))]
    tuner = knob_tuner(layer11_task())
    tuner.load_history(strange, min_seed_records=5)
    assert tuner.cost_model.base_model is None


def test_history_of_a_log(tmp_path):
    log, tuner = tmp_path / "a.log", knob_tuner(layer11_task())
    log.write_text("".join(autotvm.record.encode(*pair) + "\n" for pair in records(10)))
    tuner.load_history(str(log), min_seed_records=10)
    assert tuner.cost_model.base_model is not None


def test_history_of_a_similar_task_helps_at_once():
    given, wins = records(300), 0
    for seed in range(5):
        random.seed(seed)
        tuner = knob_tuner(layer11_task())
        tuner.load_history(given, min_seed_records=300)
        wins += best_of(tuner, 48) < best_of(RandomTuner(layer11_task()), 48)
    assert wins >= 4


def test_a_base_counts_less_with_every_sample_of_the_task_itself():
    random.seed(0)
    task = layer11_task()
    model = XGBoostCostModel(task, "knob")
    base = model.spawn_base_model()
    assert base.fit_log(records(100), 32, 50)
    model.load_basemodel(base)
    xs = task.config_space.draw_ints(300)
    ys = [1 / smooth(task.config_space.get(i)) for i in xs]
    model.fit(xs[:64], ys[:64], 32)
    assert model.base_model is base
    trees = model._forest.score(model.features.rows(xs[:4]), np.arange(5, dtype=np.int32))
    np.testing.assert_allclose(model.predict(xs[:4]), trees + 0.5 * base.predict(xs[:4]))
    model.fit(xs, ys, 32)
    assert model.base_model is None  # 2^(-300/64) is less than a twentieth


@pytest.mark.parametrize("loss", ["reg", pytest.param("rank", marks=pytest.mark.full)])
def test_the_xgboost_package_where_it_is_named(loss):
    pytest.importorskip("xgboost")
    random.seed(0)
    tuner = knob_tuner(layer11_task(), cost_model="xgb", loss_type=loss, plan_size=32)
    assert best_of(tuner, 64) < best_of(RandomTuner(layer11_task()), 64)


@pytest.mark.parametrize(
    "how, text",
    [({"feature_type": "x"}, "feature_type is 'x'"), ({"loss_type": "x"}, "loss_type is 'x'"),
     ({"optimizer": "x"}, "optimizer is 'x'"), ({"cost_model": "x"}, "cost_model is 'x'")],
)  # fmt: skip
def test_unknown_words_are_refused(how, text):
    with pytest.raises(ValueError, match=text):
        XGBTuner(make("grid64", 0), **how)


@pytest.mark.parametrize("make_it, text", [
    (lambda t: RandomTuner("t"), "task is 't', which has no configurations .* autotvm.task.create"),
    (lambda t: XGBTuner(autotvm.task.Task("tests/grid64", (0,))), "task is Task.*, which has no configurations"),
    (lambda t: GridSearchTuner(t, range_idx=5), "range_idx is 5; it must be a pair"),
    (lambda t: GATuner(t, mutation_prob=7), "mutation_prob is 7; it must be from 0 to 1"),
    (lambda t: DropletTuner(t, pvalue=-1), "pvalue is -1; it must be from 0 to 1"),
    (lambda t: XGBTuner(t, num_threads=-1), "num_threads is -1; it must be at least 1"),
    (lambda t: SimulatedAnnealingOptimizer(t, parallel_size=0), "parallel_size is 0; it must be at least 1"),
    (lambda t: SimulatedAnnealingOptimizer(t, temp="hot"), "temp is 'hot'; it must be a number"),
    (lambda t: XGBTuner(t).load_history(5), "records is 5; it must be a log file or pairs"),
    (lambda t: XGBTuner(t).load_history([], min_seed_records="x"), "min_seed_records is 'x'; it must be an integer"),
])  # fmt: skip
def test_arguments_that_make_no_sense_are_named(make_it, text):
    with pytest.raises((TypeError, ValueError), match=text):
        make_it(make("grid64", 0))


def test_a_filter_for_diversity_fills_the_plan():
    random.seed(0)
    tuner = knob_tuner(layer11_task(), plan_size=16, diversity_filter_ratio=4)
    tuner.tune(32, computed(smooth))
    assert len(set(tuner.trials)) == 16 and isinstance(tuner.model_optimizer, ModelOptimizer)
    with pytest.raises(AssertionError):
        knob_tuner(layer11_task(), diversity_filter_ratio=0.5)


# ---- the loop ----


class Fixed(Tuner):
    """A tuner of a user: given indices in given batches."""

    def __init__(self, task, indices):
        super().__init__(task)
        self.indices, self.told = list(indices), []

    def has_next(self):
        return bool(self.indices)

    def next_batch(self, batch_size):
        out, self.indices = self.indices[:batch_size], self.indices[batch_size:]
        return [self.task.config_space.get(i) for i in out]

    def update(self, inputs, results):
        self.told.append([i.config.index for i in inputs])


def fixed(costs, trials=None, batch=2, **how):
    """Tunes with costs by order of measuring; the tuner, and (count, ttl, best_iter) as callbacks saw them."""
    task, seen = make("grid64", 0), []
    costs = list(costs)
    tuner = Fixed(task, range(len(costs)))
    option = computed(lambda c: costs[c.index], batch=batch)
    done = [0]

    def note(t, inputs, results):
        done[0] += len(inputs)
        seen.append((done[0], t.ttl, t.best_iter))

    tuner.tune(len(costs) if trials is None else trials, option, callbacks=[note], **how)
    return tuner, seen


def test_batches_are_as_large_as_the_builder_is_parallel():
    tuner, seen = fixed([1.0] * 7, trials=5, batch=3)
    assert tuner.told == [[0, 1, 2], [3, 4]] and [s[0] for s in seen] == [3, 5]
    assert (tuner.n_trial, tuner.early_stopping) == (5, 10**9)


def test_early_stopping_counts_from_the_best():
    tuner, seen = fixed([3.0, 2.0, 2.5, 2.5, 2.5, 2.5, 2.5, 1.0], early_stopping=4)
    # the best is trial 1; stopped when 5 or more are done
    assert [s[0] for s in seen] == [2, 4, 6] and tuner.best_iter == 1
    assert [s[1] for s in seen] == [3, 1, -1]
    tuner, seen = fixed([None] * 8, early_stopping=4)
    assert [s[0] for s in seen] == [2, 4] and tuner.best_config is None and tuner.best_flops == 0


def test_a_run_ends_with_the_batch_in_which_its_time_is_over():
    tuner, seen = fixed([3.0, 2.0, 1.0, 0.5], max_minutes=1e-9)
    assert tuner.told == [[0, 1]] and tuner.best_config.index == 1
    assert len(fixed([3.0, 2.0, 1.0, 0.5], max_minutes=60)[1]) == 2
    with pytest.raises(ValueError, match="max_minutes is 0; it must be greater than 0"):
        fixed([1.0], max_minutes=0)


def test_the_best_is_kept():
    tuner, _ = fixed([3.0, None, 1.5, 2.0])
    assert tuner.best_iter == 2 and tuner.best_config.index == 2
    assert tuner.best_flops == tuner.task.flop / 1.5 and tuner.best_measure_pair[1].costs == (1.5,)
    tuner.reset()
    assert (tuner.best_config, tuner.best_flops, tuner.best_iter, tuner.best_measure_pair) == (None, 0, 0, None)


def test_templates_know_that_they_are_tuned():
    seen = []

    def cost(config):
        seen.append(autotvm.GLOBAL_SCOPE.in_tuning)
        return 1.0

    RandomTuner(make("grid64", 0)).tune(4, computed(cost))
    assert seen == [True] * 4 and not autotvm.GLOBAL_SCOPE.in_tuning
    with pytest.raises(ZeroDivisionError):
        RandomTuner(make("grid64", 0)).tune(4, computed(lambda c: 1 / 0))
    assert not autotvm.GLOBAL_SCOPE.in_tuning


def test_many_errors_in_a_row_show_everything(caplog):
    task, levels = make("grid64", 0), []
    logger = logging.getLogger("autotvm")
    old = logger.level
    tuner = GridSearchTuner(task)
    tuner.set_error_threshold(3)
    tuner.tune(
        16, computed(lambda c: None if c.index < 6 else 1.0, batch=2),
        callbacks=[lambda t, i, r: levels.append(logger.getEffectiveLevel() == logging.DEBUG)],
    )  # fmt: skip
    assert "Too many errors" in caplog.text and logger.level == old
    assert levels == [False, False, True, True, False, False, False, False]  # seen by the batch after the one that decides


def test_texts_of_errors_are_kept_where_nothing_works(caplog):
    fixed([None] * 4)
    name = re.search(r"has been written to (\S+)\.\n4 of 4: it failed$", caplog.text, re.M)[1]
    with open(name) as f:
        assert f.read().count("it failed") >= 4
    os.remove(name)
    caplog.clear()
    fixed([None, 1.0])
    assert "has been written" not in caplog.text


def test_debug_lines(caplog):
    with caplog.at_level(logging.DEBUG, "autotvm"):
        fixed([4.0, None, 2.0], batch=3, si_prefix="M")
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("No: ")]
    parts = [line.split("\t") for line in lines]
    assert [p[0] for p in parts] == ["No: 1", "No: 2", "No: 3"]
    assert [p[1] for p in parts] == ["MFLOPS: 1.05/1.05", "MFLOPS: 0.00/1.05", "MFLOPS: 2.10/2.10"]
    assert parts[1][2].startswith("result: it failed") and "tile_y" in parts[0][3]


@pytest.mark.parametrize("prefix, factor", [("G", 1e9), ("k", 1e3), (" ", 1.0), ("\xb5", 1e-6), ("\u03bc", 1e-6), ("T", 1e12)])
def test_prefixes(prefix, factor):
    assert autotvm.utils.format_si_prefix(3e6, prefix) == pytest.approx(3e6 / factor)


@pytest.mark.parametrize("prefix", ["Q", "", "GG"])
def test_an_unknown_prefix_is_refused_before_anything_is_measured(prefix):
    option = computed(seconds)
    with pytest.raises(ValueError, match="si_prefix"):
        RandomTuner(make("grid64", 0)).tune(4, option, si_prefix=prefix)
    assert not option["runner"].seen


def test_a_run_that_was_ended_goes_on(tmp_path):
    log = tmp_path / "runs" / "log.json"
    log.parent.mkdir()
    task, first = make("grid64", 0), computed(seconds)

    def stop(tuner, inputs, results):
        if len(first["runner"].seen) >= 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RandomTuner(task).tune(64, first, callbacks=[autotvm.callback.log_to_file(log), stop])
    assert len(log.read_text().splitlines()) == 24 and "# done" not in log.read_text()
    for tuner in (knob_tuner(task, plan_size=16), GATuner(task, pop_size=8)):
        again = computed(seconds)
        tuner.tune(40, again, resume_log=log)
        assert len(again["runner"].seen) == 16 and not set(again["runner"].seen) & set(first["runner"].seen)
    second = computed(seconds)
    knob_tuner(task).tune(64, second, resume_log=log, callbacks=[autotvm.callback.log_to_file(log)])
    assert sorted(first["runner"].seen + second["runner"].seen) == list(range(64))
    assert log.read_text().splitlines()[-1] == "# done tests/grid64 trials=64"


def test_records_of_other_targets_and_spaces_are_not_taken_over(tmp_path, caplog):
    """A log may hold records of the same template for another device, of a version that had other knobs, or of anybody."""
    log, task = tmp_path / "log.json", make("grid64", 0)
    RandomTuner(task).tune(12, computed(seconds), callbacks=[autotvm.callback.log_to_file(log)])
    lines = [json.loads(x) for x in log.read_text().splitlines() if not x.startswith("#")]
    for line, index in zip(lines, (-1, 64, 10**30)):
        line["config"]["index"] = index
    lines[3]["config"]["entity"][0][2] = [-1, 3]
    for line in lines[4:7]:
        line["input"][0] = "opencl -device=mali"
    log.write_text("".join(json.dumps(x) + "\n" for x in lines))
    taken = {x["config"]["index"] for x in lines[7:]}
    for tuner in (knob_tuner(task, plan_size=4), GATuner(task, pop_size=4), DropletTuner(task), RandomTuner(task), GridSearchTuner(task)):
        caplog.clear()
        option = computed(seconds)
        tuner.tune(10, option, resume_log=log)
        assert len(option["runner"].seen) == 5 and not taken & set(option["runner"].seen)
        assert "4 records of tests/grid64" in caplog.text


def test_every_callback_hears_of_every_batch(tmp_path):
    def fails(tuner, inputs, results):
        raise RuntimeError("the user's own")

    log = tmp_path / "log.json"
    with pytest.raises(RuntimeError, match="the user's own"):
        RandomTuner(make("grid64", 0)).tune(16, computed(seconds, batch=4), callbacks=[fails, autotvm.callback.log_to_file(log)])
    assert len(log.read_text().splitlines()) == 4


def test_records_are_kept_where_learning_is_interrupted(tmp_path):
    class Interrupted(RandomTuner):
        def update(self, inputs, results):
            raise KeyboardInterrupt

    log = tmp_path / "log.json"
    with pytest.raises(KeyboardInterrupt):
        Interrupted(make("grid64", 0)).tune(16, computed(seconds, batch=4), callbacks=[autotvm.callback.log_to_file(log)])
    assert len(log.read_text().splitlines()) == 4


@pytest.mark.parametrize(
    "how, said",
    [
        ({"callbacks": [None]}, "callbacks: None cannot be called"),
        ({"callbacks": 5}, "not iterable"),
        ({"measure_option": None}, r"measure_option is None; autotvm\.measure_option"),
        ({"measure_option": {"builder": 1}}, "measure_option is "),
    ],
)
def test_a_run_that_cannot_begin_leaves_nothing_behind(how, said):
    with pytest.raises(TypeError, match=said):
        RandomTuner(make("grid64", 0)).tune(4, **{"measure_option": computed(seconds), **how})
    assert not autotvm.GLOBAL_SCOPE.in_tuning


@pytest.mark.parametrize("kind", [list, np.array])
def test_numbers_of_numpy_are_written_as_numbers(kind, tmp_path):
    task, log = make("numpy_knob", kind is list), tmp_path / "log.json"
    RandomTuner(task).tune(3, computed(lambda c: np.float32(1e-3)), callbacks=[autotvm.callback.log_to_file(log)])
    found = {i.config["k"].val if kind is list else tuple(i.config["k"].val) for i, _ in autotvm.record.load_from_file(log)}
    assert found == ({1, 2, 3} if kind is list else {(1, 1), (2, 2), (3, 3)})
    option = computed(seconds)
    RandomTuner(task).tune(3, option, resume_log=log)
    assert not option["runner"].seen
