"""ResNet-18 from its definition to a tuned, verified, running program: ``python -m nestsmith.demo`` (or ``make demo``).

Cuts the network into tasks, tunes them on the best device found (CUDA if a driver answers, else the CPU), writes the log,
builds the network with the best schedules, runs it, and compares its output with onnxruntime's.
"""

import argparse
import time

import numpy as np

import nestsmith as ns
from nestsmith import auto_scheduler, relay
from nestsmith.contrib import graph_executor
from nestsmith.contrib.target.onnx import to_onnx


def compile_and_run(mod, params, target, dev, data, log_file=None):
    """Builds the network (with the schedules of `log_file`, or the default ones) and returns (output, benchmark result)."""
    config = {"relay.backend.use_auto_scheduler": True}
    without = auto_scheduler.dispatcher.FallbackContext(verbose=0)
    with without if log_file is None else auto_scheduler.ApplyHistoryBest(log_file):
        with ns.transform.PassContext(opt_level=3, config=config):
            lib = relay.build(mod, target=target, params=params)
    module = graph_executor.GraphModule(lib["default"](dev))
    module.set_input("data", ns.nd.array(data))
    module.run()
    return module.get_output(0).numpy(), module.benchmark(dev, repeat=3, min_repeat_ms=300)


def reference(mod, params, data):
    """The output of an independent implementation, or None with a printed reason where onnx or onnxruntime is missing."""
    try:
        import onnxruntime
    except ImportError as e:
        print(f"output not checked: {e}; pip install onnx onnxruntime")
        return None
    model = to_onnx(mod, params).SerializeToString()
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"data": data})[0]


def check(name, out, ref):
    """Prints the largest difference relative to the largest value, and stops if it is above 1e-4."""
    if ref is None:
        return
    error = float(np.abs(out - ref).max() / np.abs(ref).max())
    print(f"{name}: largest relative difference from onnxruntime {error:.1e}")
    if not error < 1e-4:
        raise SystemExit(f"{name}: the output is wrong")


def main(argv=None):
    """Runs the demo; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=18, help="18, 34, 50, 101 or 152")
    parser.add_argument("--trials", type=int, default=None, help="measured candidates (default: 1536 on a GPU, 192 on a CPU)")
    parser.add_argument("--target", default=None, help="cuda or llvm (default: the best device found)")
    parser.add_argument("--log", default=None, help="tuning log to append to")
    parser.add_argument("--verbose", action="store_true", help="show each search and each round, as the API does with verbose=1")
    args = parser.parse_args(argv)

    target = ns.target.Target(args.target or ("cuda" if ns.cuda(0).exist else "llvm"))
    on_gpu = target.kind.name == "cuda"
    trials = args.trials or (1536 if on_gpu else 192)
    log_file = args.log or f"resnet-{args.layers}-NHWC-B1-{target.kind.name}.json"
    dev = ns.device(str(target), 0)
    begin = time.time()

    net = relay.testing.resnet.get_net(1, 1000, args.layers, image_shape=(224, 224, 3), layout="NHWC")
    mod, params = relay.testing.create_workload(net, relay.testing.HeNormal("HWIO"))  # an output that shows wrong kernels
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, target)
    print(f"ResNet-{args.layers} on {target.kind.name}: {len(tasks)} tasks")
    for i, (task, weight) in enumerate(zip(tasks, weights)):
        print(f"  {i:2d}  weight {int(weight)}  {task.compute_dag.flop_ct / 1e6:8.1f} MFLOP  {task.desc}")

    data = np.random.default_rng(0).uniform(size=(1, 224, 224, 3)).astype("float32")
    ref = reference(mod, params, data)
    out, before = compile_and_run(mod, params, target, dev, data)
    check("default schedules", out, ref)

    print(f"tuning with {trials} trials, log: {log_file}")
    context = auto_scheduler.LocalRPCMeasureContext(repeat=1, min_repeat_ms=100 if on_gpu else 40, timeout=10)
    tuner = auto_scheduler.TaskScheduler(tasks, weights)
    with ns.progress("auto" if args.verbose else "bar"):
        tuner.tune(
            auto_scheduler.TuningOptions(num_measure_trials=trials, runner=context.runner,
                                         measure_callbacks=[auto_scheduler.RecordToFile(log_file)])
        )
    out, after = compile_and_run(mod, params, target, dev, data, log_file)
    check("tuned schedules", out, ref)

    print("\ndefault schedules\n" + str(before))
    print("\ntuned schedules\n" + str(after))
    print(f"\nestimated from the tasks: {tuner.cur_score * 1e3:.3f} ms, measured: {after.median * 1e3:.3f} ms, "
          f"{before.median / after.median:.1f} times as fast as with default schedules; {time.time() - begin:.0f} s in all")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
