"""Where the time of a compiled network goes, layer by layer."""

import math

from .. import check
from .limits import limits

__all__ = ["Layer", "Report"]


_ANEW = 3  # times that limits are measured at most


class Layer:
    """A kernel of a network.

    Attributes
    ----------
    name, layer : str
        What it is called, and the layer of the user's model, "" if that is not known.
    seconds, share : float
        Its time, and of the time of all.
    gflops, gbytes : float
        Operations and bytes (inputs, weights and outputs, each once) per second, in 1e9.
    limit : float or None
        The least time that the machine needs for these operations or bytes, of the time that it took. Each level of memory (caches,
        then main memory) gives as many of the bytes as it can hold. A CPU's limits are measured: a layer that is faster shows the
        limit itself, 1.
    bound : str
        What that least time is of: "ops", or the farthest level of memory that is needed: "L1", "L2", "L3", "DRAM"; "" if `limit` is None.
    products : str
        What they are of where the build may use tensor cores: "float16", "bfloat16", "int8", "uint8", "tf32", "float32x3"; else "".
    schedule : str
        Where its schedule comes from: "log record", "similar task (...)", "first choice of the search", "default".
    """

    __slots__ = "name", "layer", "seconds", "share", "gflops", "gbytes", "limit", "bound", "products", "schedule"

    def __init__(self, node, seconds, nbytes, most):
        facts = node["attrs"]
        flops = max(0.0, float(facts.get("flops", 0)))  # -1: not known
        self.name, self.layer = node["name"].removeprefix("tvmgen_default_").removeprefix("fused_"), facts.get("layer", "")
        self.schedule, self.products = facts.get("schedule", ""), facts.get("products", "")
        self.seconds, self.share = seconds, 0.0
        rate = 1 / seconds if seconds > 0 else math.nan
        self.gflops, self.gbytes = flops * rate / 1e9, nbytes * rate / 1e9
        least, self.bound = most.least(flops, nbytes, self.products)
        self.limit = least * rate if least is not None else None

    def __repr__(self):
        return f"<Layer {self.name}: {self.seconds * 1e6:.1f} us, {self.share:.0%}, {self.schedule}>"


class Report:
    """Rows of layers in the order in which they run, and the whole.

    Attributes
    ----------
    rows : list of Layer
    kernels, total : float
        Seconds: the sum of the layers, and of a run of the network, measured in turns.
    fits : bool
        Whether both agree: within 15 % on a CPU, within a factor of 2 on a GPU, where each kernel is repeated alone. If not, other
        work has disturbed the machine all the time; measure again.
    """

    def __init__(self, graph, seconds, total, target, device, fits=True):
        self.target, self.device, self.total, self.fits = target, device, total, fits
        for _ in range(_ANEW):  # a CPU's limits are measured: no layer is faster than the machine
            self.rows = self._rows(graph, seconds, limits(target, device))
            if all(r.limit is None or r.limit <= 1 for r in self.rows):
                break
        self.kernels = sum(r.seconds for r in self.rows)
        for r in self.rows if device.device_type == 1 else ():
            r.limit = min(r.limit, 1.0)  # it shows what the machine can do
        for r in self.rows:
            r.share = r.seconds / self.kernels if self.kernels else 0.0

    @staticmethod
    def _rows(graph, seconds, most):
        sizes, rows = _entry_bytes(graph), []
        for index, node in enumerate(graph["nodes"]):
            if node["op"] == "null" or node["attrs"]["func_name"] in ("__nop", "__join"):
                continue
            first, last = graph["node_row_ptr"][index : index + 2]
            read = {graph["node_row_ptr"][i] + k for i, k, *_ in node["inputs"]}
            rows.append(Layer(node, seconds[index], sum(sizes[e] for e in (*read, *range(first, last))), most))
        return rows

    @property
    def ratio(self):
        """The time of a run, of the sum of its kernels."""
        return self.total / self.kernels if self.kernels else math.nan

    def origins(self):
        """How many layers have their schedule from where: {text: number}."""
        out = {}
        for r in self.rows:
            out[r.schedule] = out.get(r.schedule, 0) + 1
        return out

    def __str__(self):
        wide = max([24, *(min(48, len(r.name)) for r in self.rows)])
        of = 11 if any(r.products for r in self.rows) else 0  # letters for what products are of, if there is something to say
        head = f"{'layer':{wide}}  {'us':>9}  {'share':>6}  {'GFLOP/s':>8}  {'GB/s':>7}  {'of limit':>9}  {'products'[:of]:{of}}schedule"
        lines = [head, "-" * len(head)]
        for r in self.rows:
            limit = "-" if r.limit is None else f"{r.limit:.0%} {r.bound}"
            name = r.name if len(r.name) <= wide else r.name[: wide - 2] + ".."
            lines.append(
                f"{name:{wide}}  {r.seconds * 1e6:9.1f}  {r.share:6.1%}  {r.gflops:8.1f}  {r.gbytes:7.1f}  {limit:>9}  "
                f"{(r.products or '-')[:of]:{of}}{r.schedule}" + (f"  [{r.layer}]" if r.layer else "")
            )
        where = ", ".join(f"{n} {text}" for text, n in self.origins().items())
        lines.append(f"{len(self.rows)} kernels on {self.device} ({self.target.kind.name}): {self.kernels * 1e3:.3f} "
                     f"ms, one after the other; a run takes {self.total * 1e3:.3f} ms ({self.ratio:.2f} of it). "
                     f"Schedules: {where or 'none'}")
        if not self.fits:
            lines.append("The layers do not add up to a run: other work has disturbed the machine all the time. The "
                         "times are uncertain; measure again when it is idle.")
        return "\n".join(lines)

    __repr__ = __str__


def _entry_bytes(graph):
    shapes, types = graph["attrs"]["shape"][1], graph["attrs"]["dltype"][1]
    return [math.prod(s) * check.dtype_bytes(t) for s, t in zip(shapes, types)]
