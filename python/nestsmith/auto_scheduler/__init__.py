"""The auto-scheduler: finds fast loop programs for computations by searching and measuring."""

import importlib as _importlib
import typing as _typing
import warnings as _warnings

from .. import _absent
from . import cost_model, dispatcher, feature, log_tools, log_verify, measure, search_task, tuning, utils
from .compute_dag import (ComputeDAG, LayoutRewriteOption, get_shape_from_rewritten_layout, remove_index_check, rewrite_compute_body,
                          rewrite_tensor_shape)  # fmt: skip
from .cost_model import AnalyticModel, CostModel, PythonBasedModel, RandomModel, xgb_model
from .dispatcher import ApplyHistoryBest, DispatchContext, FallbackContext
from .hardware import HardwareParams
from .learned_model import NetworkModel, XGBModel
from .loop_state import State
from .measure import *  # noqa: F403
from .measure_record import RecordReader, RecordToFile, load_best_record, load_records, save_records
from .models import make_cost_model
from .plot import plot_latency, plot_log
from .relay_integration import extract_tasks, is_auto_scheduler_enabled
from .sampling import ApplyHistoryBestOrSample
from .search_policy import EmptyPolicy, PreloadCustomSketchRule, PreloadMeasuredStates, SearchPolicy, SketchPolicy
from .search_task import *  # noqa: F403
from .session import StopTuning
from .task_scheduler import LogEstimatedLatency, PrintTableInfo, TaskScheduler, TaskSchedulerCallback
from .workload_registry import make_workload_key, register_workload

# ``python -m nestsmith.auto_scheduler.measure_record`` runs a module that this package imports as well, which is harmless
_warnings.filterwarnings("ignore", r"'nestsmith\.auto_scheduler\.measure_record' found in sys\.modules", RuntimeWarning)

for _where, _what in ((measure, search_task.recover_measure_input), (dispatcher, ApplyHistoryBestOrSample), (cost_model, XGBModel)):
    setattr(_where, _what.__name__, _what)  # TVM's places for them; here these modules lie below what they need



if not _typing.TYPE_CHECKING:  # a type checker shall find names that are not there

    def __getattr__(name):
        if name == "RPCRunner":  # needs the extra `cluster`
            return _importlib.import_module(".remote", __name__).RPCRunner
        raise _absent.attribute_error(__name__, name)
