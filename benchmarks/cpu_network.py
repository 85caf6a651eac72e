"""ResNet on CPU cores: default schedules, schedules found in a short search, and onnxruntime on the same network.

    python benchmarks/cpu_network.py [--layers 18] [--trials 200] [--log FILE] [--threads 2] [--no-search]

The search writes to LOG and the network is built with its best records. All sides use the same number of threads.
Each figure is the minimum over repeats that alternate between the sides (a shared machine disturbs every other
statistic); with one thread it is CPU time.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=18)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--log", default=None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--no-search", action="store_true", help="use the records of --log as they are")
    parser.add_argument("--no-default", action="store_true", help="without the default schedules")
    args = parser.parse_args()
    os.environ["NESTSMITH_NUM_THREADS"] = str(args.threads)
    sys.path[:0] = [str(ROOT / "python")]
    import nestsmith as ns
    from nestsmith import auto_scheduler, relay
    from nestsmith.contrib import graph_executor
    from nestsmith.contrib.target.onnx import to_onnx

    log = args.log or str(pathlib.Path(tempfile.mkdtemp()) / "cpu_network.json")
    target = ns.target.Target("llvm")
    mod, params = relay.testing.resnet.get_workload(
        num_layers=args.layers, batch_size=1, layout="NHWC", image_shape=(args.image, args.image, 3), dtype="float32"
    )
    if not args.no_search:
        tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, target)
        tuner = auto_scheduler.TaskScheduler(tasks, weights)
        options = auto_scheduler.TuningOptions(
            num_measure_trials=args.trials,
            runner=auto_scheduler.LocalRunner(repeat=3, min_repeat_ms=30, enable_cpu_cache_flush=False),
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
        )
        begin, cpu = time.time(), sum(os.times()[:4])
        tuner.tune(options)
        wall, cpu = time.time() - begin, sum(os.times()[:4]) - cpu
        each = f"{wall / args.trials:.3f} s per trial ({cpu / args.trials:.3f} s of CPU time)"
        print(f"{len(tasks)} tasks, {args.trials} trials: {each}", flush=True)

    data = np.random.default_rng(0).uniform(size=(1, args.image, args.image, 3)).astype("float32")
    sides, outputs = {}, {}
    tuned = "records of --log" if args.no_search else f"{args.trials} trials"
    for name, with_log in (("default schedules", False), (tuned, True)):
        if args.no_search and not args.log if with_log else args.no_default:
            continue
        with ns.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
            if with_log:
                with auto_scheduler.ApplyHistoryBest(log):
                    lib = relay.build(mod, target=target, params=params)
            else:
                lib = relay.build(mod, target=target, params=params)
        m = graph_executor.GraphModule(lib["default"](ns.cpu(0)))
        m.set_input("data", data)
        m.run()
        outputs[name] = m.get_output(0).numpy()
        sides[f"nestsmith, {name}"] = m.run
    try:
        import onnxruntime

        path = pathlib.Path(tempfile.mkdtemp()) / "net.onnx"
        model = to_onnx(mod, params)
        path.write_bytes(model.SerializeToString())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = args.threads
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feed = {session.get_inputs()[0].name: data}
        outputs["onnxruntime"] = session.run(None, feed)[0]
        sides["onnxruntime"] = lambda: session.run(None, feed)
    except ImportError:
        print("onnxruntime is not installed")
    first = next(iter(outputs.values()))
    for o in outputs.values():
        assert np.allclose(o, first, rtol=1e-3, atol=1e-5), "outputs differ"
    best = dict.fromkeys(sides, float("inf"))
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    for _ in range(args.repeats):
        for name, run in sides.items():
            run()
            begin = clock()
            run()
            best[name] = min(best[name], clock() - begin)
    floor = min(best.values())
    for name, seconds in best.items():
        print(f"{name:32s} {seconds * 1e3:9.3f} ms {seconds / floor:7.2f}")


if __name__ == "__main__":
    main()
