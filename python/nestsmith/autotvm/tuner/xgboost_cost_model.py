"""Boosted trees that rank configurations."""

import logging
import random

import numpy as np

from ... import _core, check
from ...auto_scheduler.hardware import cores
from ...auto_scheduler.xgb_model import forest_of, package as xgboost_package
from ..measure import MeasureErrorNo
from ..measure.measure import flops_of
from .features import KINDS, FeatureCache, Features, row_of
from .model_based_tuner import CostModel
from .tuner import space_of

__all__ = ["XGBoostCostModel"]

logger = logging.getLogger("autotvm")

FAILED = 1e10  # seconds that say so to the engine
OWN, HISTORY = (8000, 20), (400, 100)  # trees at most; patience
BASE_GONE = 0.05  # a base that counts less is left out
LOSS = {"rank": "order", "reg": "squared", "rank-binary": "order"}
PACKAGE_LOSS = {"rank": "rank:pairwise", "reg": "reg:squarederror", "rank-binary": "rank:pairwise"}


def share_of_base(n):
    """How much a base counts beside n samples of the task itself."""
    return 2.0 ** (-n / 64)


class XGBoostCostModel(CostModel):
    """Trees of depth 3 over features of configurations.

    Parameters
    ----------
    task : Task
    feature_type : "itervar", "knob" or "curve"
    loss_type : "rank", "reg" or "rank-binary"
    num_threads : int, optional
        For training; default as many as the machine has to give.
    log_interval : int
        Accepted for scripts that give it.
    upper_model : XGBoostCostModel, optional
        The model that this one is a base of: they share features.
    package : "trees" or "xgb"
        Who trains: the engine, or the xgboost package. Raises ImportError if that is missing.

    Raises
    ------
    ValueError
        If one of the words is unknown.
    """

    def __init__(self, task, feature_type="itervar", loss_type="rank", num_threads=None, log_interval=25,
                 upper_model=None, package="trees"):
        for name, value, allowed in (("feature_type", feature_type, KINDS), ("loss_type", loss_type, LOSS),
                                     ("cost_model", package, ("trees", "xgb"))):
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
        self.space = space_of(task)
        self.task, self.target = task, task.target
        self.fea_type, self.loss_type = feature_type, loss_type
        self.num_threads = check.integer("num_threads", num_threads or cores(), 1)
        self.log_interval, self.package = log_interval, package
        self._xgboost = xgboost_package() if package == "xgb" else None
        self.feature_cache = upper_model.feature_cache if upper_model else FeatureCache()
        self.features = upper_model.features if upper_model else Features(task, feature_type, self.feature_cache)
        self.base_model, self._forest, self._width, self._samples = None, None, 0, ()

    # ---- learning ----

    def fit(self, xs, ys, plan_size):
        self._samples = np.array(xs, np.int64), np.array(ys, np.float64), plan_size
        rows = self.features.rows(self._samples[0])
        share = share_of_base(len(xs))
        if share < BASE_GONE:
            self.base_model = None
        start = share * self.base_model.predict(self._samples[0], True) if self.base_model else None
        self._train(rows, self._samples[1], start, plan_size, *OWN)

    def fit_log(self, records, plan_size, min_seed_records=500):
        rows, flops = [], []
        for inp, res in records:
            if inp.task.name != self.task.name or res.error_no != MeasureErrorNo.NO_ERROR:
                continue
            try:
                row = row_of(inp.task, inp.config, self.fea_type, self.target)
                if not inp.task.flop:  # of a log; its template counts
                    with self.target:
                        inp.task.instantiate(inp.config)
            except Exception as e:  # noqa: BLE001 - an old record that does not fit the template any more
                logger.debug("a record is left out: %s", e)
                continue
            rows.append(row)
            flops.append(flops_of(inp.task, res))
        if not rows or len(rows) < min_seed_records:
            logger.debug("no transfer: %d good records of %s, %d are needed", len(rows), self.task.name, min_seed_records)
            return False
        self._samples = ()
        self._train(self.features.stack(rows), np.array(flops), None, 2 * plan_size, *HISTORY)
        return True

    def _train(self, rows, ys, start, plan_size, trees, patience):
        """Trains on rows in random order."""
        order = np.array(random.sample(range(len(ys)), len(ys)), np.int64)
        rows, ys = rows[order], ys[order] / max(ys.max(), 1e-8)
        start = None if start is None else start[order]
        self._width = rows.shape[1]
        if self._xgboost:
            self._forest = self._train_package(rows, ys, start, plan_size, trees, patience)
            return
        costs = np.where(ys > 0, 1 / np.maximum(ys, 1e-30), FAILED)
        self._forest = _core.Forest.train_template(rows, costs, LOSS[self.loss_type], plan_size, patience, trees,
                                                   0.5 if self.loss_type == "rank-binary" else 0.0, start,
                                                   random.getrandbits(32), self.num_threads)

    def _train_package(self, rows, ys, start, plan_size, trees, patience):
        ranks = self.loss_type != "reg"
        # its ranking takes whole numbers only, and as gains no larger ones than this
        data = self._xgboost.DMatrix(rows, np.rint(ys * 31) if ranks else ys)
        if start is not None:
            data.set_base_margin(start)
        if ranks:
            data.set_group([len(ys)])
        params = {
            "max_depth": 3, "gamma": 1e-4, "min_child_weight": 1, "eta": 0.3, "lambda": 1.0, "alpha": 0, "verbosity": 0,
            "objective": PACKAGE_LOSS[self.loss_type], "base_score": 0.0, "nthread": self.num_threads,
        }  # fmt: skip
        booster, best, at = self._xgboost.Booster(params, [data]), -1.0, 0
        for t in range(trees):
            booster.update(data, t)
            if t % 2:
                continue
            recall = _core.average_recall(ys, booster.predict(data, output_margin=True), plan_size, 0.0)
            if recall > best:
                best, at = recall, t
            if t - at >= patience:
                break
        return forest_of(booster, rows.shape[1])

    # ---- use ----

    def predict(self, xs, output_margin=False):
        xs = np.asarray(xs, np.int64)
        rows = self.features.rows(xs)
        if self._forest is None:
            return np.zeros(len(xs))
        if rows.shape[1] != self._width:
            rows = self._refit(xs, rows)
        score = self._forest.score(rows, np.arange(len(xs) + 1, dtype=np.int32))
        if self.base_model:
            score = score + share_of_base(len(self._samples[0])) * self.base_model.predict(xs, True)
        return score

    def _refit(self, xs, rows):
        """A wider row than any before has come up: what was learnt is learnt again with as many entries."""
        if self._samples:
            self.fit(*self._samples)
            return self.features.rows(xs)
        return rows[:, : self._width]  # of a base: the entries that it knows

    def load_basemodel(self, base_model):
        self.base_model = base_model

    def close(self):
        self.features.close()

    def spawn_base_model(self):
        return XGBoostCostModel(self.task, self.fea_type, self.loss_type, self.num_threads, self.log_interval, self,
                                self.package)

