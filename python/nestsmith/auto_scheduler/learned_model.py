"""The learned cost models: trees or a network over features of the loop program, trained on what was measured."""

import gzip
import itertools
import json
import logging
import os
import pathlib
import random
import shutil
import tempfile
import zlib

from nestsmith import _core

from ..states import handle_of
from .cost import FAILED, seconds_of
from .cost_model import CostModel
from .hardware import cores
from .measure import MeasureInput
from .measure_record import RecordReader
from .search_task import recover_measure_input

__all__ = ["XGBModel", "NetworkModel", "BlendModel"]

logger = logging.getLogger("auto_scheduler")

PLACEHOLDER, INLINED = 0, 1  # of a stage: op_type, compute_at


class XGBModel(CostModel):
    """Boosted trees inside the engine; the name is the one that users' scripts know.

    One model serves all tasks of a run. It is retrained after a round when enough of its records are new; before the
    training the analytic estimate ranks candidates.

    Parameters
    ----------
    verbose_eval : int
        Accepted and not used.
    num_warmup_sample : int
        Accepted and not used: training starts with the first records.
    seed : int, optional
    model_file : str, optional
        The model is saved here after each training.
    adaptive_training : bool
        Accepted; retraining is always as sparse as that option asks for.
    base : str, optional
        File of trees that were trained on earlier runs (`nestsmith.pretrain`): training starts from their scores. A task
        whose first 16 measurements contradict them goes on without. "auto": the one in the package for the device of
        the first task, if there is one.

    Raises
    ------
    ValueError
        If `model_file` is given to a model that has no file format (`BlendModel`).
    """

    _kind, _has_format = "trees", True

    def __init__(self, verbose_eval=25, num_warmup_sample=100, seed=None, model_file=None, adaptive_training=False,
                 base=None):
        self.num_warmup_sample, self.verbose_eval = num_warmup_sample, verbose_eval
        self.adaptive_training = adaptive_training
        if model_file is not None and not self._has_format:
            raise ValueError(f"model_file is {model_file!r}, but {self._kind!r} has no file format; use trees or mlp")
        self.model_file, self._unsaved = model_file, False
        self.engine = _core.Learner(seed or random.randint(1, 1 << 30), self._kind)
        self._number, self.base = {}, base

    def _task(self, task, engine=None):
        """The learner's number of a task; the first search to ask lends its engine-side task."""
        if task.workload_key not in self._number:
            self._load_base(task)
            self._number[task.workload_key] = self.engine.task(engine or task.engine_policy())
        return self._number[task.workload_key]

    def _load_base(self, task):
        """Before the first task."""
        base, self.base = self.base, None
        if base == "auto":
            base = packaged(task.target)
        if base is not None:
            self.load(base)

    def dropped(self):
        """Workload keys of the tasks whose measurements contradicted the base."""
        flags = self.engine.dropped()
        return [key for key, i in self._number.items() if flags[i]]

    def scorer(self, task, engine=None):
        self._load_base(task)
        number = self.engine.task(engine) if engine is not None else self._task(task)
        self._number[task.workload_key] = number
        return self.engine.scorer(number)

    def update(self, inputs, results):
        """Adds measurements and trains if that is due."""
        self._add(inputs, results)
        if self._train() and self.model_file:
            self._keep()

    def _keep(self):
        """Saves the model between rounds. A file that cannot be written is one warning: the run is worth more."""
        try:
            self.save(self.model_file)
            self._unsaved = False
        except OSError as e:
            if not self._unsaved:
                logger.warning("the cost model cannot be saved (%s); it is tried again after each training", e)
            self._unsaved = True

    def cancel(self):
        """A running training ends with KeyboardInterrupt; the model stays as it was."""
        self.engine.cancel()

    def _train(self):
        return self.engine.train(cores())

    def _add(self, inputs, results):
        for i, r in zip(inputs, results):
            seconds = seconds_of(r)
            if seconds == FAILED and r.error_no == 0:
                logger.warning("a measurement of %s s is no time; the candidate counts as failed", r.costs)
            self.engine.add(self._task(i.task), handle_of(i.state), seconds)

    def predict(self, task, states):
        number = self._task(task)
        return [self.engine.score(number, task.compute_dag.infer_bound_from_state(s).state_object) for s in states]

    def predict_stages(self, task, states):
        """Scores of states and what their stages add to them, in one list of floats.

        First the score of each state, as `predict` gives it; then for each state the number of its scored stages and
        their scores in stage order. Placeholders and inlined stages are not scored, nor is a state whose score is
        ``-inf`` (its number is 0). Scores of stages are parts of the trees' sum, in other units than the state's score:
        only their order and sign say something. Zeros before the first training.

        Raises
        ------
        NotImplementedError
            For a network, whose score is no sum.
        """
        number, scores, parts = self._task(task), self.predict(task, states), []
        for score, s in zip(scores, states):
            state = task.compute_dag.infer_bound_from_state(s)
            if score == float("-inf"):
                parts.append(0.0)
                continue
            own = self.engine.stages(number, state.state_object)
            own = [v for v, st in zip(own, state.stages) if st.op_type != PLACEHOLDER and st.compute_at != INLINED]
            parts += [float(len(own)), *own]
        return [*scores, *parts]

    def update_from_file(self, file_name, n_lines=None):
        """Trains on a log: all records whose workloads are known in this process."""
        used, skipped, tasks = 0, 0, {}
        for inp, res in itertools.islice(RecordReader(file_name), n_lines):
            try:
                if inp.task.identity not in tasks:
                    tasks[inp.task.identity] = recover_measure_input(inp).task
                self._add([MeasureInput(tasks[inp.task.identity], inp.state.steps())], [res])
                used += 1
            except (ValueError, RuntimeError):
                skipped += 1
        self._train()
        logger.info("XGBModel: trained on %d records of %s, %d skipped", used, file_name, skipped)

    def save(self, file_name):
        """Writes the trained model. Raises `RuntimeError` before the first training."""
        self.engine.save(str(file_name), json.dumps({"records": self.engine.records()}))

    def load(self, file_name):
        """Reads a model written by `save`; it ranks candidates until the next training. A base (`nestsmith.pretrain`)
        stays for good. Files that end in .gz are unpacked."""
        file_name = str(file_name)
        if not os.path.isfile(file_name):
            raise FileNotFoundError(f"no cost model file {file_name}")
        if not file_name.endswith(".gz"):
            self.engine.load(file_name)
            return
        with tempfile.NamedTemporaryFile(suffix=".acm") as plain:
            try:
                with gzip.open(file_name) as packed:
                    shutil.copyfileobj(packed, plain)
            except (EOFError, gzip.BadGzipFile, zlib.error) as e:
                raise ValueError(f"{file_name} is damaged: {e}") from e
            plain.flush()
            self.engine.load(plain.name)


class NetworkModel(XGBModel):
    """A network over the same features, with the same methods: for many records, and to go on from a saved model."""

    _kind = "mlp"


class BlendModel(XGBModel):
    """Trees and a network on the same records; a candidate's score is the sum of both, each in units of its deviation."""

    _kind, _has_format = "trees+mlp", False

    def save(self, file_name):
        """Raises ValueError: a blend has no file format."""
        super().save(file_name)


def packaged(target):
    """Path of the file that the package brings for a target's class of device, or None."""
    if target.kind.name != "cuda":
        return None
    arch = str(target.attrs.get("arch", "") or "")
    path = pathlib.Path(__file__).parents[1] / "models" / f"cuda-{arch}.acm.gz"
    return str(path) if arch and path.is_file() else None
