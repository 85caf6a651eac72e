"""Networks on CPU cores beside onnxruntime and torch.compile, all with the same number of threads, in one run.

    python benchmarks/cpu_peers.py [--networks resnet18,...] [--trials 20] [--threads 2] [--log FILE] [--out FILE]

Each network comes from torchvision or transformers with weights as training leaves them (He-scaled, batch statistics that are
not 0 and 1), batch 1, and is tuned with so many trials per task; the log is gone on with if it exists. Outputs must agree with
PyTorch within 1e-4 of the largest value. The sides take turns, each for a few runs after a pause: threads of a side that
has just run go on looking for work for a while (those of OpenMP for 0.2 s) and would take cores from the next one. The figure
of each is the median of `--repeats` runs, which a spread (from the first to the third quartile) goes with. The table goes to --out.
"""

import argparse
import io
import os
import pathlib
import platform
import statistics
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "bert_base")
SIDES = ("nestsmith", "onnxruntime", "torch.compile")
PAUSE, WARM, TURN = 0.4, 2, 6  # seconds before a turn, runs of it that are not counted, runs that are


def network(name):
    """(module in evaluation mode, arguments)."""
    import torch

    torch.manual_seed(0)
    if name == "bert_base":
        import transformers

        class Encoder(transformers.BertModel):
            """Tensors in and out, whatever else this release of transformers takes."""

            def forward(self, words):
                return super().forward(words).last_hidden_state

        model = Encoder(transformers.BertConfig(attn_implementation="eager"))
        given = (torch.randint(0, 30000, (1, 128)),)
    else:
        import torchvision

        model, given = getattr(torchvision.models, name)(weights=None), (torch.randn(1, 3, 224, 224),)
    for m in model.modules():
        if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear)) and name != "bert_base":
            torch.nn.init.kaiming_normal_(m.weight)
        if isinstance(m, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(m.running_mean, 0, 0.1), torch.nn.init.uniform_(m.running_var, 0.5, 2)
    return model.eval(), given


def first(out):
    """The first tensor of what a model returns."""
    while not hasattr(out, "shape"):
        out = next(iter(out.values())) if isinstance(out, dict) else out[0]
    return np.asarray(out)


def sides(name, args):
    """{side: function without arguments that returns the first output}, and what nestsmith needed."""
    import onnxruntime
    import torch

    import nestsmith

    model, given = network(name)
    file = io.BytesIO()
    torch.onnx.export(model, given, file, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: given[0].numpy()}
    inductor = torch.compile(model)
    begin = time.time()
    plain = nestsmith.compile(model, given, target="llvm", guess=False, verbose=0)
    tuned = nestsmith.compile(model, given, target="llvm", trials=args.trials * len(plain.tasks), log=args.log)
    made = f"{len(plain.tasks)} tasks, {time.time() - begin:.0f} s"
    runs = {
        "nestsmith": lambda: first(tuned(*given)),
        "onnxruntime": lambda: session.run(None, feed)[0],
        "torch.compile": lambda: first(inductor(*given)),
    }
    with torch.no_grad():
        want = first(model(*given))
        for side, run in runs.items():
            error = np.abs(run() - want).max() / np.abs(want).max()
            assert error < 1e-4, f"{name}: {side} differs from PyTorch by {error:.1e} of the largest value"
    time.sleep(PAUSE)
    print(tuned.report(), flush=True)
    return runs, made


def measure(runs, repeats):
    """Seconds of `repeats` runs, by side."""
    import torch

    seconds = {side: [] for side in runs}
    with torch.no_grad():
        while min(map(len, seconds.values())) < repeats:
            for side, run in runs.items():
                time.sleep(PAUSE)
                for _ in range(WARM):
                    run()
                for _ in range(TURN):
                    begin = time.perf_counter()
                    run()
                    seconds[side].append(time.perf_counter() - begin)
    return seconds


def row(name, seconds, made):
    """(line of the table, how many times as fast as the better of the others)."""
    medians = {side: statistics.median(s) for side, s in seconds.items()}
    ratio = min(medians["onnxruntime"], medians["torch.compile"]) / medians["nestsmith"]
    cells = []
    for side in SIDES:
        low, _, high = statistics.quantiles(seconds[side], n=4)
        cells.append(f"{medians[side] * 1e3:.2f} ({low * 1e3:.2f} to {high * 1e3:.2f})")
    return f"| {name} | {' | '.join(cells)} | {ratio:.2f} | {made} |", ratio


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else ():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma-separated: " + ", ".join(NETWORKS))
    parser.add_argument("--trials", type=int, default=20, help="per task")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--log", default="cpu_peers.json", help="tuning log to go on from and to append to")
    parser.add_argument("--out", default=str(ROOT / "docs" / "results" / "cpu-peers.md"), help="where the table goes")
    args = parser.parse_args()
    wrong = [n for n in args.networks.split(",") if n not in NETWORKS]
    if wrong:
        parser.error(f"network {wrong[0]!r} is not known; known are {', '.join(NETWORKS)}")
    os.environ["NESTSMITH_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.environ["NESTSMITH_LOG_DIR"] = ""  # the log that is named, and no other
    sys.path[:0] = [str(ROOT / "python")]
    import onnxruntime
    import torch

    torch.set_num_threads(args.threads)
    lines, ratios = [], []
    for name in args.networks.split(","):
        runs, made = sides(name, args)
        line, ratio = row(name, measure(runs, args.repeats), made)
        print(line, flush=True)
        lines.append(line)
        ratios.append(ratio)
    mean = statistics.geometric_mean(ratios)
    text = (
        "# Networks on CPU cores, beside onnxruntime and torch.compile\n\n"
        f"`python benchmarks/cpu_peers.py --trials {args.trials} --threads {args.threads}` on {processor()}, {args.threads} threads each, "
        f"load of the machine at the end {os.getloadavg()[0]:.1f}; onnxruntime {onnxruntime.__version__}, PyTorch {torch.__version__} "
        f"(Inductor). Batch 1, float32, {args.trials} trials per task. Milliseconds: median (first to third quartile) of {args.repeats} "
        "runs, arrays in and out.\n\n"
        "| Network | nestsmith | onnxruntime | torch.compile | faster than the better of them | tuning |\n|---|---|---|---|---|---|\n"
        + "\n".join(lines) + f"\n\nGeometric mean: {mean:.2f} times as fast as the better of the two; least: {min(ratios):.2f}.\n"
    )
    pathlib.Path(args.out).write_text(text)
    print(f"\ngeometric mean {mean:.2f}, least {min(ratios):.2f}; table in {args.out}")


if __name__ == "__main__":
    main()
