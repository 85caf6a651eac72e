"""Template tuning: schedules written by hand with open choices, which tuners make by measuring."""

import warnings as _warnings

from .. import _absent
from . import callback, database, env, feature, log, measure, record, task, templates, tophub, tuner, utils
from .env import GLOBAL_SCOPE
from .history import ApplyGraphBest, ApplyHistoryBest
from .measure import BuildResult, LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput, MeasureResult, measure_option
from .task import (ApplyFixedConfig, ConfigEntity, ConfigSpace, DispatchContext, FallbackContext, create, get_config,
                   register_topi_compute, register_topi_schedule, relay_integration, template)

# Importing templates has registered them; importing relay_integration makes relay.build ask here.
apply_fixed_config, apply_graph_best, apply_history_best = ApplyFixedConfig, ApplyGraphBest, ApplyHistoryBest
for _name in relay_integration.__all__:
    setattr(task, _name, getattr(relay_integration, _name))
for _where in (task, task.dispatcher):  # TVM's places for them; here these modules lie below what they need
    for _what in (ApplyGraphBest, ApplyHistoryBest):
        setattr(_where, _what.__name__, _what)

# ``python -m nestsmith.autotvm.record`` runs a module that this package imports as well, which is harmless
_warnings.filterwarnings("ignore", r"'nestsmith\.autotvm\.record' found in sys\.modules", RuntimeWarning)


def __getattr__(name):
    if name == "RPCRunner":  # needs the extra `cluster`
        return measure.RPCRunner
    raise _absent.attribute_error(__name__, name)
