"""Tasks: templates, their configurations, and which one a program gets."""

from . import code_hash, dispatcher, space, task, topi_integration
from .dispatcher import ApplyConfig, ApplyFixedConfig, DispatchContext, FallbackContext, clear_fallback_cache
from .space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from .task import Task, args_to_workload, create, deserialize_args, get_config, serialize_args, template
from .topi_integration import TaskExtractEnv, get_workload, register_topi_compute, register_topi_schedule
