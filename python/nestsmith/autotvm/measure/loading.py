"""Measuring by a user's hand: a `module_loader` gets an artifact onto a device in its own way, for example onto one that has to be
set up first. What it loads is timed in its session; nothing is raced and no results are compared."""

import concurrent.futures
import os
import secrets
import tempfile
import time

import numpy as np

from ... import nd
from ...error import RPCSessionTimeoutError
from ...runtime.module import OperatorModule
from .measure import BuildResult, MeasureErrorNo, MeasureResult
from .pipeline import trimmed
from .program import failure

__all__ = ["measure_loaded"]


def _artifact(built, target, folder):
    """The built candidate as a file: a builder's own, or what `LocalBuilder` holds in memory."""
    if built.filename:
        return built
    source, manifest, binary = built.program.program
    path = os.path.join(folder, f"tmp_func_{secrets.token_hex(8)}.tar")
    OperatorModule(source, manifest, binary, str(target)).export_library(path)
    return BuildResult(path, built.arg_info, None, built.time_cost)


def _arguments(runner, built, dev):
    """`ref_input`, or numbers of [1, 10)."""
    if runner.ref_input is not None:
        return [nd.array(x, dev) for x in runner.ref_input]
    rng = np.random.default_rng(0)
    return [nd.array(rng.uniform(1, 10, shape).astype(dtype), dev) for shape, dtype in built.arg_info]


def _measure(runner, inp, built):
    begin = time.time()
    try:
        with tempfile.TemporaryDirectory(prefix="nestsmith-artifact-") as folder:
            artifact = _artifact(built, inp.target, folder)
            with runner.module_loader(runner.remote_kwargs(), artifact) as (remote, module):
                dev = remote.device(str(inp.target), runner.device)
                timed = module.time_evaluator(
                    module.entry_name, dev, runner.number, runner.repeat, runner.min_repeat_ms,
                    f_preproc="cache_flush_cpu_non_first_arg" if runner.enable_cpu_cache_flush else "",
                )  # fmt: skip
                costs = trimmed(timed(*_arguments(runner, artifact, dev)).results)
        result = MeasureResult(costs, 0, built.time_cost + time.time() - begin, time.time())
    except Exception as e:  # noqa: BLE001 - whatever the loader, the program or the device does is the candidate's result
        number = MeasureErrorNo.RUN_TIMEOUT if isinstance(e, RPCSessionTimeoutError) else MeasureErrorNo.RUNTIME_DEVICE
        result = failure(number, e, built.time_cost + time.time() - begin, time.time())
    time.sleep(runner.cooldown_interval)
    return result


def measure_loaded(runner, inputs, built):
    """The results of built candidates, each loaded by ``runner.module_loader``, as many at the same time as the runner may."""
    with concurrent.futures.ThreadPoolExecutor(max(1, min(runner.n_parallel, len(inputs)))) as pool:
        return list(pool.map(lambda pair: _measure(runner, *pair), zip(inputs, built)))
