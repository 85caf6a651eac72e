"""Planning while a board measures: when it happens, what it does not change."""

import random
import threading

import numpy as np
import pytest
from tuning_spaces import Costs, NoBuilder, layer11_task, smooth

from helpers import PATIENCE
from nestsmith import autotvm, te
from nestsmith.autotvm.measure import create_measure_batch
from nestsmith.autotvm.tuner import SimulatedAnnealingOptimizer, XGBTuner

PLAN = 32


class Board(Costs):
    """A board elsewhere: a batch ends once a plan has been made, if it is the last one of a plan; notes the sizes of batches."""

    overlaps = True

    def __init__(self, seconds, planned=None):
        super().__init__(seconds)
        self.planned, self.batches = planned, []

    def run(self, measure_inputs, build_results):
        self.batches.append(len(measure_inputs))
        done = sum(self.batches)
        if self.planned is not None and done % PLAN == 0 and done < 4 * PLAN:
            assert self.planned.acquire(timeout=PATIENCE), "no plan was made during the last batch of the one before"
        return super().run(measure_inputs, build_results)


class Telling(SimulatedAnnealingOptimizer):
    """Says when it has made a plan, and which thread was at it."""

    def __init__(self, task, planned):
        super().__init__(task, n_iter=20)
        self.planned, self.threads = planned, []

    def find_maximums(self, model, num, exclusive):
        found = super().find_maximums(model, num, exclusive)
        self.threads.append(threading.current_thread())
        self.planned.release()
        return found


def tuned(seed, board, trials=4 * PLAN, batch=8, **how):
    random.seed(seed)
    tuner = XGBTuner(layer11_task(), plan_size=PLAN, feature_type="knob", **how)
    tuner.tune(trials, autotvm.measure_option(NoBuilder(n_parallel=batch), board))
    return tuner


def test_the_next_plan_is_made_during_the_last_batch():
    planned = threading.Semaphore(0)
    optimizer, board = Telling(layer11_task(), planned), Board(smooth, planned)
    tuned(1, board, optimizer=optimizer)
    assert board.batches == [8] * 16 and len(set(board.seen)) == 128
    assert len(optimizer.threads) == 4  # the last one, after which nothing is measured, as ever
    assert [t is threading.main_thread() for t in optimizer.threads] == [False] * 3 + [True]


def test_a_seed_gives_the_same_run():
    first, second = Board(smooth), Board(smooth)
    tuned(3, first)
    tuned(3, second)
    assert first.seen == second.seen
    here = Costs(smooth)
    tuned(3, here)
    assert first.seen[: PLAN] == here.seen[: PLAN] and not np.array_equal(first.seen, here.seen)


@pytest.mark.parametrize("batch, sizes", [(64, [24, 8]), (20, [20, 4, 8]), (5, [5, 5, 5, 5, 4, 5, 3])])
def test_a_large_batch_is_cut_before_the_last_one_of_a_plan(batch, sizes):
    board = Board(smooth)
    tuned(0, board, trials=2 * PLAN, batch=batch)
    assert board.batches == sizes * 2 and len(set(board.seen)) == 2 * PLAN


def test_batches_stay_large_while_nothing_works():
    board = Board(lambda config: None)
    tuned(0, board, trials=3 * PLAN)
    assert board.batches == [8] * 12


def test_batches_stay_large_after_a_log_of_several_plans(tmp_path):
    log, board = tmp_path / "log.json", Board(smooth)
    random.seed(0)
    XGBTuner(layer11_task(), plan_size=PLAN, feature_type="knob").tune(
        4 * PLAN, autotvm.measure_option(NoBuilder(n_parallel=8), Costs(smooth)), callbacks=[autotvm.callback.log_to_file(str(log))]
    )
    tuner = XGBTuner(layer11_task(), plan_size=PLAN, feature_type="knob")
    tuner.tune(5 * PLAN, autotvm.measure_option(NoBuilder(n_parallel=8), board), resume_log=str(log))
    assert board.batches == [8] * 4


def test_a_plan_that_fails_is_told_and_loses_no_record(tmp_path):
    class Broken(Telling):
        def find_maximums(self, model, num, exclusive):
            raise ZeroDivisionError("no idea")

    log = tmp_path / "log.json"
    random.seed(0)
    tuner = XGBTuner(layer11_task(), plan_size=PLAN, feature_type="knob", optimizer=Broken(layer11_task(), None))
    with pytest.raises(ZeroDivisionError, match="no idea"):
        tuner.tune(2 * PLAN, autotvm.measure_option(NoBuilder(n_parallel=8), Board(smooth)),
                   callbacks=[autotvm.callback.log_to_file(str(log))])  # fmt: skip
    assert len(log.read_text().splitlines()) == PLAN


@pytest.mark.parametrize("target, overlaps", [("llvm", False), ("opencl", True)])
def test_only_other_devices_are_left_to_measure(target, overlaps):
    """Planning on the processor that measures would disturb the times."""
    task = autotvm.task.create("tests/grid64", (0,), target)
    batch = create_measure_batch(task, autotvm.measure_option("local", autotvm.LocalRunner()))
    assert batch.overlaps == overlaps
    batch.close()


@autotvm.template("tests/blocks")
def blocks(n):
    """A product whose tiles are blocks of threads."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s, cfg = te.create_schedule(c.op), autotvm.get_config()
    for axis, name in zip(s[c].op.axis, "yx"):
        cfg.define_split(f"tile_{name}", axis, num_outputs=2, max_factor=8)
    (yo, yi), (xo, xi) = (cfg[f"tile_{name}"].apply(s, c, axis) for axis, name in zip(s[c].op.axis, "yx"))
    s[c].reorder(yo, xo, yi, xi, k)
    for axis, name in ((yo, "blockIdx.y"), (xo, "blockIdx.x"), (yi, "threadIdx.y"), (xi, "threadIdx.x")):
        s[c].bind(axis, te.thread_axis(name))
    cfg.define_knob("copy", [0, 1, 2])
    return s, [a, b, c]


def test_features_of_programs_are_taken_while_opencl_measures():
    """The pipeline as it is: candidates on PoCL, planning in its thread and processes."""
    random.seed(0)
    task = autotvm.task.create("tests/blocks", (64,), "opencl")
    tuner = XGBTuner(task, plan_size=16, feature_type="itervar", optimizer=Telling(task, threading.Semaphore(0)))
    runner = autotvm.LocalRunner(number=1, repeat=1)
    tuner.tune(48, autotvm.measure_option(autotvm.LocalBuilder(n_parallel=4), runner))
    threads = tuner.model_optimizer.threads
    assert len(threads) == 3 and [t is threading.main_thread() for t in threads] == [False, False, True]
    assert len(tuner.visited) == 48 and tuner.best_config is not None
