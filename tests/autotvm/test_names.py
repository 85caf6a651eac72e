"""That scripts for TVM find names where they look for them, with its arguments in its order; ours come after them."""

import importlib
import inspect

import pytest

PLACES = {
    "": "template register_topi_compute register_topi_schedule get_config create ConfigSpace ConfigEntity DispatchContext FallbackContext "
    "apply_history_best apply_graph_best apply_fixed_config GLOBAL_SCOPE measure_option MeasureInput MeasureResult MeasureErrorNo "
    "LocalBuilder LocalRunner RPCRunner callback env feature measure record task tophub tuner utils",
    ".task": "Task create get_config args_to_workload template serialize_args deserialize_args ConfigSpace ConfigEntity "
    "DispatchContext ApplyConfig ApplyFixedConfig ApplyHistoryBest FallbackContext clear_fallback_cache ApplyGraphBest "
    "register_topi_compute register_topi_schedule TaskExtractEnv get_workload extract_from_program extract_from_multiple_program",
    ".task.space": "TransformSpace VirtualAxis SplitSpace SplitEntity ReorderSpace ReorderEntity AnnotateSpace AnnotateEntity "
    "OtherOptionSpace OtherOptionEntity ConfigSpace ConfigEntity FallbackConfigEntity InstantiationError get_factors get_pow2s",
    ".task.task": "Task TaskTemplate MissingTask compute_flop FlopCalculationError TASK_TABLE",
    ".task.dispatcher": "DispatchContext ApplyConfig ApplyFixedConfig ApplyHistoryBest FallbackContext ApplyGraphBest clear_fallback_cache",
    ".task.code_hash": "attach_code_hash attach_code_hash_to_arg",
    ".tuner": "Tuner GridSearchTuner RandomTuner GATuner XGBTuner DropletTuner callback",
    ".tuner.callback": "log_to_file log_to_database Monitor progress_bar",
    ".tuner.model_based_tuner": "CostModel ModelOptimizer ModelBasedTuner",
    ".tuner.sa_model_optimizer": "SimulatedAnnealingOptimizer",
    ".tuner.xgboost_cost_model": "XGBoostCostModel",
    ".measure": "MeasureInput MeasureResult MeasureErrorNo measure_option create_measure_batch LocalBuilder LocalRunner RPCRunner "
    "request_remote default_module_loader",
    ".measure.measure": "MeasureInput MeasureResult MeasureErrorNo Builder Runner measure_option create_measure_batch",
    ".measure.measure_methods": "LocalBuilder LocalRunner RPCRunner BuildResult request_remote default_module_loader check_remote",
    ".record": "measure_str_key encode decode load_from_buffer load_from_file split_workload pick_best AUTOTVM_LOG_VERSION",
    ".env": "AutotvmGlobalScope GLOBAL_SCOPE reset_global_scope",
    ".utils": "format_si_prefix",
    ".tophub": "context load_reference_log",
}
ARGUMENTS = {
    "tuner.XGBTuner": "task plan_size feature_type loss_type num_threads optimizer diversity_filter_ratio log_interval",
    "tuner.GATuner": "task pop_size elite_num mutation_prob",
    "tuner.RandomTuner": "task range_idx",
    "tuner.GridSearchTuner": "task range_idx",
    "tuner.DropletTuner": "task start_position pvalue",
    "tuner.Tuner.tune": "self n_trial measure_option early_stopping callbacks si_prefix",
    "tuner.Tuner.load_history": "self data_set min_seed_records",
    "tuner.SimulatedAnnealingOptimizer": "task n_iter temp persistent parallel_size early_stop log_interval",
    "LocalBuilder": "timeout n_parallel build_kwargs build_func do_fork runtime",
    "LocalRunner": "timeout number repeat min_repeat_ms cooldown_interval enable_cpu_cache_flush module_loader",
    "RPCRunner": "key host port priority timeout n_parallel number repeat min_repeat_ms cooldown_interval enable_cpu_cache_flush module_loader",
    "measure.request_remote": "device_key host port priority timeout",
    "measure.measure_methods.check_remote": "target device_key host port priority timeout",
    "measure.default_module_loader": "pre_load_function",
    "task.create": "task_name args target target_host",
    "task.extract_from_program": "mod params target target_host ops",
    "task.extract_from_multiple_program": "mods params target target_host ops",
    "callback.progress_bar": "total prefix si_prefix",
    "callback.log_to_file": "file_out protocol",
    "record.pick_best": "in_file out_file",
    "record.split_workload": "in_file clean",
    "record.encode": "inp result protocol",
    "record.decode": "row protocol",
    "record.measure_str_key": "inp include_config",
    "feature.get_itervar_feature": "sch args take_log",
    "feature.get_buffer_curve_sample_flatten": "sch args sample_n",
    "ConfigSpace.define_split": "self name axis policy",
    "ConfigSpace.define_reorder": "self name axes policy",
    "ConfigSpace.define_annotate": "self name axes policy",
    "ConfigSpace.define_knob": "self name candidate",
    "ConfigSpace.multi_filter": "self filter",
    "ConfigSpace.get_next_index": "self index n start end",
    "ConfigSpace.get_rand_index": "self start end to_exclude",
    "task.space.FallbackConfigEntity.fallback_split": "self name constraints",
    "task.space.FallbackConfigEntity.fallback_with_reference_log": "self ref_log",
}


@pytest.mark.parametrize("place", PLACES)
def test_names_are_where_scripts_look_for_them(place):
    module = importlib.import_module("nestsmith.autotvm" + place)
    missing = [n for n in PLACES[place].split() if not hasattr(module, n)]
    assert not missing


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_in_the_order_of_scripts(name):
    found = importlib.import_module("nestsmith.autotvm")
    for part in name.split("."):
        found = getattr(found, part)
    want = ARGUMENTS[name].split()
    assert list(inspect.signature(found).parameters)[: len(want)] == want
