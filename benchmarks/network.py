"""ResNet on one GPU: nestsmith with the schedules of one or several logs, beside PyTorch in the same run.

PyTorch runs the same network (pre-activation ResNet, batch 1, float32, TF32 off) as cuDNN kernels replayed from a CUDA graph,
and compiled by Inductor (captured the same way). Each figure is the median of 20 repeats of
at least 50 ms; sides alternate.

    python benchmarks/network.py [--log FILE ...] [--layers 18] [--no-torch]
"""

import argparse
import pathlib
import statistics
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python")]
import nestsmith as ns  # noqa: E402
from nestsmith import auto_scheduler, relay  # noqa: E402
from nestsmith.contrib import graph_executor  # noqa: E402


def build(mod, params, target, log):
    """A graph module with the schedules of `log` (None: default schedules)."""
    config = {"relay.backend.use_auto_scheduler": True}
    begin = time.time()
    with ns.transform.PassContext(opt_level=3, config=config):
        if log is None:
            lib = relay.build(mod, target=target, params=params)
        else:
            with auto_scheduler.ApplyHistoryBest(log):
                lib = relay.build(mod, target=target, params=params)
    print(f"built with {log or 'default schedules'} in {time.time() - begin:.1f} s", flush=True)
    return graph_executor.GraphModule(lib["default"](ns.device(str(target), 0)))


def torch_resnet(layers, channels_last=True):
    """The same network in PyTorch, random weights; only its speed is of interest."""
    import torch
    from torch import nn

    units = {18: [2, 2, 2, 2], 34: [3, 4, 6, 3]}[layers]

    class Unit(nn.Module):
        def __init__(self, ci, co, stride, match):
            super().__init__()
            self.bn1, self.bn2 = nn.BatchNorm2d(ci), nn.BatchNorm2d(co)
            self.conv1 = nn.Conv2d(ci, co, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(co, co, 3, 1, 1, bias=False)
            self.short = None if match else nn.Conv2d(ci, co, 1, stride, bias=False)

        def forward(self, x):
            act = torch.relu(self.bn1(x))
            y = self.conv2(torch.relu(self.bn2(self.conv1(act))))
            return y + (x if self.short is None else self.short(act))

    layers_ = [nn.BatchNorm2d(3), nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    ci = 64
    for stage, n in enumerate(units):
        co = 64 << stage
        for i in range(n):
            layers_.append(Unit(ci, co, 1 if stage == 0 or i else 2, i > 0))
            ci = co
    layers_ += [nn.BatchNorm2d(512), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000), nn.Softmax(1)]
    net = nn.Sequential(*layers_).eval().cuda()
    return net.to(memory_format=torch.channels_last) if channels_last else net


def captured(net, x):
    """net(x) as a CUDA graph; returns a function that times n replays in seconds."""
    import torch

    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(5):
                net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            net(x)

    def run(n):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record()
        for _ in range(n):
            graph.replay()
        b.record()
        torch.cuda.synchronize()
        return a.elapsed_time(b) / 1e3 / n

    run.keeps = net, x  # the graph reads and writes their memory

    run(20)
    return run


def torch_sides(layers, mode):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    sides = {}
    for last in (True, False):
        x = torch.rand(1, 3, 224, 224, device="cuda")
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        name = "channels_last" if last else "NCHW"
        sides[f"cuDNN, CUDA graph, {name}"] = captured(torch_resnet(layers, last), x)
    try:
        net = torch.compile(torch_resnet(layers), mode=mode)
        x = torch.rand(1, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
        begin = time.time()
        with torch.no_grad():
            net(x)
        print(f"Inductor compiled in {time.time() - begin:.0f} s", flush=True)
        sides["Inductor, CUDA graph"] = captured(net, x)
    except Exception as e:  # the peer's own trouble must not hide our figures
        print(f"Inductor failed: {str(e)[:200]}")
    return sides


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", action="append", default=[])
    parser.add_argument("--layers", type=int, default=18)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--inductor", default="default", help="torch.compile mode; max-autotune-no-cudagraphs takes minutes")
    parser.add_argument("--default", action="store_true", help="also without any log")
    args = parser.parse_args()
    target = ns.target.Target("cuda")
    mod, params = relay.testing.resnet.get_workload(
        num_layers=args.layers, batch_size=1, layout="NHWC", image_shape=(224, 224, 3), dtype="float32"
    )
    data = np.random.default_rng(0).uniform(size=(1, 224, 224, 3)).astype("float32")
    sides, outputs = {}, []
    for log in ([None] if args.default else []) + args.log:
        m = build(mod, params, target, log)
        m.set_input("data", data)
        m.run()
        outputs.append(m.get_output(0).numpy())
        sides[f"nestsmith, {pathlib.Path(log).name if log else 'default schedules'}"] = (
            lambda n, m=m: m.module.time_evaluator("run", ns.cuda(0), number=n, repeat=1)().mean
        )
    for o in outputs[1:]:
        assert np.allclose(o, outputs[0], rtol=1e-4, atol=1e-7), "the outputs of two builds differ"
    if not args.no_torch:
        sides.update(torch_sides(args.layers, args.inductor))
    numbers = {k: max(5, int(0.05 / max(run(5), 1e-6))) for k, run in sides.items()}
    got = {k: [] for k in sides}
    for _ in range(20):
        for k, run in sides.items():
            got[k].append(run(numbers[k]))
    best = min(statistics.median(v) for v in got.values())
    print(f"{'':44s} median ms   min ms  ratio")
    for k, v in got.items():
        print(f"{k:44s} {statistics.median(v) * 1e3:9.4f} {min(v) * 1e3:8.4f} {statistics.median(v) / best:6.2f}")


if __name__ == "__main__":
    main()
