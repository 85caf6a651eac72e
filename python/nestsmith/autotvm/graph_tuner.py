"""Which record each operator of a network takes.

In TVM a graph tuner weighs slower schedules against changes of layout between them. Networks here keep blocks of channels between
convolutions whatever their records say, so the fastest record of each operator is the choice, and nothing has to be measured.
"""

import logging

from ..auto_scheduler.cost import rank_of
from ..target import Target
from .history import pairs_of
from .log import encode
from .task.relay_integration import extract_from_program

__all__ = ["DPTuner", "PBQPTuner"]

logger = logging.getLogger("autotvm")


class DPTuner:
    """Chooses a record for each operator of a network.

    Parameters
    ----------
    graph : IRModule or relay.Function
    input_shapes : dict of str to tuple
        Of the network's inputs.
    records : str, Path or iterable
        A tuning log, or pairs of (MeasureInput, MeasureResult).
    target_ops : list of relay.op.Op or str
        Operators that get records.
    target : Target or str
    max_sch_num, dtype, verbose, log_file, log_level, name
        Accepted: nothing is measured.

    Raises
    ------
    ValueError
        If a task has no record.
    """

    def __init__(self, graph, input_shapes, records, target_ops, target, max_sch_num=20, dtype="float32", verbose=True, log_file=None,
                 log_level=logging.DEBUG, name="graph_tuner"):  # fmt: skip
        self._target, self._best, self._chosen = Target.canon_target(target), {}, None
        tasks = extract_from_program(graph, {}, self._target, ops=target_ops)
        wanted = {t.workload for t in tasks}
        for pair in pairs_of(records):
            workload = pair[0].task.workload
            known = self._best.get(workload)
            if pair[1].error_no == 0 and workload in wanted and (known is None or rank_of(pair[1]) < rank_of(known[1])):
                self._best[workload] = pair
        self._order = [t.workload for t in tasks]
        missing = [w for w in self._order if w not in self._best]
        if missing:
            raise ValueError(f"{len(missing)} of {len(self._order)} tasks have no record, the first is {missing[0]}; tune them before")

    def benchmark_layout_transform(self, min_exec_num=100, timeout=10, use_rpc=False, device_key=None, host="127.0.0.1", port=9190, n_parallel=1,
                                   build_func="default", layout_records=None, target_host=None, infer_layout=False, runner=None):  # fmt: skip
        """Nothing: networks keep the layouts of their records, and what changes one is compiled with its neighbours."""

    def run(self, **kwargs):
        """Chooses."""
        self._chosen = [self._best[w] for w in self._order]
        logger.info("%d operators have their fastest records", len(self._chosen))

    def get_optimal_records(self):
        """The chosen (MeasureInput, MeasureResult) pairs, in the order of the network. Raises ValueError before `run`."""
        if self._chosen is None:
            raise ValueError("nothing is chosen yet: call run()")
        return list(self._chosen)

    def write_opt_sch2record_file(self, record_file="graph_opt_schedule.log"):
        """Writes them as a log for `autotvm.apply_graph_best`. Raises ValueError before `run`."""
        lines = [encode(*pair) + "\n" for pair in self.get_optimal_records()]
        with open(record_file, "w", encoding="utf-8") as f:
            f.writelines(lines)


class PBQPTuner(DPTuner):
    """The same choice under the name of TVM's other method."""
