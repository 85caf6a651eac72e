"""Hostile records: what strangers may put into a tuning log, each handled in a process of its own under limits.

``cases(count, seed, world)`` lists attacks by name and then seeded changes of real records, of public logs and of our search.
``python tests/fuzz/hostile.py COUNT SEED OUT`` gives every case to the whole package (reading, choosing the best, tools,
`relay.build` or `build`, a resumed run) and writes a line of JSON per case to OUT: what each part did, processor seconds and
the largest memory of the process and of the compilers it started.
"""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import random
import resource
import select
import signal
import sys
import time
import traceback

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent / "data"
MEMORY, SECONDS, PATIENCE = 1 << 30, 10, 600  # bytes; of processor time, for the machine may be busy; on the clock
UNCLEAR = (RecursionError, NotImplementedError, UnicodeEncodeError, UnicodeDecodeError)


# ---- real records: (record as JSON, name of what it is for) ----


def public(name):
    with gzip.open(DATA / name, "rt") as f:
        return [json.loads(line) for line in f if line.strip() and line[0] not in "# "]


def real(tasks):
    """Records of public logs, and of our own search for the tasks of a network."""
    from nestsmith import _core

    out = [(r, "llvm") for r in public("tvm-resnet-50-NHWC-B1-llvm.json.gz")]
    out += [(r, "cuda") for r in public("tvm-resnet-18-NHWC-B1-cuda.json.gz")]
    for task in tasks:
        for state, _ in _core.Policy(task.compute_dag, task.engine_target(), {}, 1, 1).round(6):
            out.append((own(task, json.loads(state.steps())), "network"))
    return out


def own(task, steps):
    who = [task.workload_key, "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0], "", 2, []]
    return {"i": [who, [[], steps]], "r": [[3.2859e-05], 0, 0.085, 1700000000], "v": "v0.6 stage=quick n=21 sd=0.06 l2=mixed"}


# ---- attacks by name ----


def attacks(base):
    """{name: line} of changes of one record, whose stages are placeholder, placeholder, product, placeholder, sum, relu."""
    out = {}

    def at(name, path, value):
        r = json.loads(json.dumps(base))
        x = r
        for p in path[:-1]:
            x = x[p]
        x[path[-1]] = value
        out[name] = json.dumps(r)

    def steps(name, s):
        at(name, ("i", 1, 1), s)

    text = json.dumps(base)
    for name, costs in {
        "zero": [0.0], "negative": [-1.0], "none": [], "huge": [1e308, 1e308], "tiny": [1e-320], "text": ["x"], "null": [None],
        "many": [1.0] * 100_000,
    }.items():
        at(f"cost {name}", ("r", 0), costs)
    out["cost nan"], out["cost inf"] = text.replace("3.2859e-05", "NaN"), text.replace("3.2859e-05", "1e999")
    for value in (2**40, -1, 99):
        at(f"error {value}", ("r", 1), value)
    for value in (10**15, -(10**15), 1.5, "now"):
        at(f"time {value}", ("r", 3), value)
    for name, target in {
        "flags": "llvm -mcpu=native -o pwned", "plugin": "llvm -mcpu=native,-fplugin=/tmp/x.so", "newline": 'llvm -mcpu="a\nb"',
        "empty": "", "blank": "  ", "json": '{"kind":"llvm","mcpu":"; touch pwned"}', "long": "llvm " + "-x" * 1_000_000,
        "deep": '{"kind":' * 100_000, "tag": "@tag:/etc/passwd", "shell": "llvm -mcpu='$(touch pwned)'", "list": '{"kind": ["llvm"]}',
        "host": '{"kind":"llvm","host":' * 1500 + '"llvm"' + "}" * 1500, "escape": "llvm -model=\x1b[31m", "device": "cuda -from_device=99",
    }.items():
        at(f"target {name}", ("i", 0, 1), target)
    at("host junk", ("i", 0, 3), "c -mcpu=;touch pwned")
    at("host deep", ("i", 0, 3), '{"kind":"llvm","host":' * 5000)
    for name, hw in {"zero": [0] * 8, "negative": [-1] * 8, "huge": [2**31 - 1] * 8, "few": [1], "many": [1] * 10_000}.items():
        at(f"hardware {name}", ("i", 0, 2), hw)
    for name, key in {
        "deep": "[" * 100_000 + "]" * 100_000, "code": '["__import__(\'os\').system(\'touch pwned\')",[1]]', "word": "hello",
        "object": '{"a":1}', "number": "5", "nul": '["a\\u0000b"]', "empty": "[]", "list": "[[1],[2]]", "dict": '["a",{"b":1}]',
        "long": json.dumps(["k", [1] * 1_000_000]), "digits": "[" + "9" * 100_000 + "]",
    }.items():
        at(f"key {name}", ("i", 0, 0), key)
    out["json deep"], out["json deep value"] = "[" * 10**6, '{"x":' + "[" * 10**6 + "]" * 10**6 + ', "i":1}'
    out["json less deep"] = '{"x":' + "[" * 990 + "]" * 990 + "," + text[1:]
    out["keys twice"], out["nul"] = '{"i": 5, "r": 6, ' + text[1:], text[:50] + "\0" + text[50:]
    out["mark"], out["long line"] = "\ufeff" + text, text[:-1] + ', "x": "' + "a" * 50_000_000 + '"}'
    out["long list"] = text[:-1] + ', "x": [' + "1," * 20_000_000 + "1]}"
    for n in (100_000, 1_000_000):
        at(f"inputs {n}", ("i", 0, 5), ["x"] * n)
    at("inputs path", ("i", 0, 5), ["../../etc/passwd", "/etc/shadow"])
    at("layout", ("i", 0, 4), 9)
    at("marks", ("v",), "v0.6 stage=full n=99999999999999999999999 sd=nan regs=-1 occ=1e999")
    at("version number", ("v",), 6)
    at("version escape", ("v",), "v0.6 cause=\x1b[31m msg=\x1b]0;pwn\x07")
    for n in (10_000, 50_000, 200_000):
        steps(f"fuse {n}", [["FU", 2, [0]]] * n)
    for n in (1000, 20_000):
        steps(f"split {n}", [["SP", 2, 0, 1, [1], 1]] * n)
    steps("split by 99 parts", [["SP", 2, 0, 1, [1] * 99, 1]] * 300)
    steps("split and fuse", [["SP", 2, 0, 1, [1] * 99, 1], ["FU", 2, list(range(100))]] * 300)
    for name, lengths in {"huge": [2**31 - 1] * 9, "large": [2**31 - 1, 2**31 - 1], "negative": [-4], "zero": [0], "open": [None]}.items():
        steps(f"split {name}", [["SP", 2, 1, 128, lengths, 1]])
    steps("cache reads", [["CHR", 0, "local", [2 + k]] for k in range(2000)])
    steps("cache writes", [["CHW", 2, "local"]] * 2000)
    steps("roots", [["CR", 2]] * 1_000_000)
    steps("factors", [["SP", 2, 2, 784, [4], 1], ["RF", 2, 3, 2]] * 300)
    steps("follow", [["SP", 2, 0, 1, [1], 1], ["FFSP", 2, 0, [0] * 100_000, 0, 1]])
    for name, pragma in {
        "include": 'auto_unroll_max_step$0\n#include "/etc/passwd"', "code": 'import_c$system("touch pwned")',
        "huge": "auto_unroll_max_step$" + "9" * 20, "negative": "auto_unroll_max_step$-5",
        "long": "auto_unroll_max_step$" + "9" * 10**7, "skip": "debug_skip_region",
        "most": "auto_unroll_max_step$16384", "shell": "auto_unroll_max_step$`touch pwned`",
    }.items():
        steps(f"pragma {name}", [["PR", 2, 0, pragma]])
    steps("pragmas", [["PR", 2, 0, "auto_unroll_max_step$0"]] * 100_000)
    for name, scope in {
        "code": "local; system(1)", "shared": "shared", "brace": "local.\n}evil{", "quote": 'local."evil', "shell": "$(touch pwned)",
    }.items():
        steps(f"scope {name}", [["CHR", 0, scope, [2]]])
        steps(f"write scope {name}", [["CHW", 2, scope]])
    steps("unroll all", [["PR", 2, 0, "auto_unroll_max_step$2000000000"], ["AN", 2, 0, 1], ["AN", 2, 1, 1], ["AN", 2, 2, 1]])
    for n in (2**10, 2**15, 2**20, 2**30):
        for name, code in {"unroll": 1, "vector": 2, "vthread": 4, "tensorize": 11, "thread": 6}.items():
            steps(f"{name} {n}", [["SP", 2, 1, 128, [n], 1], ["AN", 2, 2, code]])
    steps("vthreads in vthreads", [["SP", 2, 1, 128, [32] * 6, 1], *[["AN", 2, k, 4] for k in range(2, 8)]])
    steps("align", [["SA", 2, 0, 2**31 - 1, 2**31 - 1]])
    steps("align back", [["SA", 2, 0, 1, -(2**31)]])
    steps("inside itself", [["CA", 2, 2, 0]])
    steps("inside one another", [["CA", 2, 4, 0], ["CA", 4, 2, 0]])
    steps("output inside", [["CA", 5, 2, 0]])
    steps("nothing", [])
    tile = [16, 16, 16, 16, 8, 2, 0, 1]
    for name, numbers in {
        "": tile, "huge": [2**31 - 1] * 8, "large": [256] * 8, "zero": [0] * 8, "negative": [-1] * 8, "few": [16], "none": [],
        "many": [16] * 100_000, "open": [None] * 8, "half open": [None, *tile[1:]], "float": [16.5] * 8, "text": ["x"] * 8,
    }.items():
        at(f"tensor cores {name}", ("v",), "v0.6 steps=" + json.dumps([[0, "MM", 2, numbers]]).replace(" ", ""))
    at("tensor cores of no stage", ("v",), "v0.6 steps=" + json.dumps([[0, "MM", 99, tile]]).replace(" ", ""))
    at("tensor cores often", ("v",), "v0.6 steps=" + json.dumps([[k, "MM", 2, tile] for k in range(300)]).replace(" ", ""))
    return out


# ---- seeded changes ----

EXTREME = [0, 1, -1, 2, 3, 7, 16, 64, 1024, 4096, 65536, 2**20, 2**31 - 1, 2**31, 2**53, -(2**31), 0.5, 1e308, None, True, "", "x", [], {}, [[]]]


def number(r):
    return r.choice([r.randrange(12), r.randrange(12), r.choice([2, 4, 16, 64, 512, 4096, 2**16, 2**20, 2**30]), r.choice(EXTREME[:16])])


STEP = {
    "AN": lambda r: [r.randrange(8), r.randrange(12), r.choice([1, 1, 2, 3, 4, 4, 5, 6, 11])],
    "FU": lambda r: [r.randrange(8), list(range(k := r.randrange(4), k + r.randrange(1, 5)))],
    "PR": lambda r: [r.randrange(8), r.randrange(12), f"auto_unroll_max_step${number(r)}"],
    "RE": lambda r: [r.randrange(8), r.sample(range(n := r.randrange(1, 12)), n)],
    "SP": lambda r: [r.randrange(8), r.randrange(8), 1, [number(r) for _ in range(r.choice([1, 2, 4, 9]))], r.randrange(2)],
    "FSP": lambda r: [r.randrange(8), r.randrange(8), r.randrange(6), r.randrange(4)],
    "FFSP": lambda r: [r.randrange(8), r.randrange(8), [r.randrange(6) for _ in range(r.randrange(4))], r.randrange(3), r.randrange(2)],
    "SA": lambda r: [r.randrange(8), r.randrange(8), number(r), number(r)],
    "CA": lambda r: [r.randrange(8), r.randrange(8), r.randrange(12)],
    "CI": lambda r: [r.randrange(8)],
    "CR": lambda r: [r.randrange(8)],
    "CHR": lambda r: [r.randrange(8), r.choice(["local", "shared", "global"]), [r.randrange(8) for _ in range(r.randrange(1, 3))]],
    "CHW": lambda r: [r.randrange(8), r.choice(["local", "global"])],
    "RF": lambda r: [r.randrange(8), r.randrange(12), r.randrange(4)],
}


def product_step(r):
    """Tensor cores: numbers that often fit each other."""
    tile = [r.choice([16, 32, 64, 128]), r.choice([8, 16, 32, 64]), r.choice([16, 32, 64, 256])]
    numbers = [*tile, 16 * r.randrange(1, 3), 8 * r.randrange(1, 3), r.choice([2, 3, 8]), r.randrange(2), r.choice([1, 1, 2, 64])]
    while r.random() < 0.4:
        numbers[r.randrange(8)] = r.choice([number(r), 256, 24, 48, 9])
    numbers = [n if isinstance(n, int) else 16 for n in numbers]
    return ["MM", r.choice([3, 3, 3, 2, 0, 9]), numbers[: r.choice([8] * 12 + [0, 7])]]


def step(r):
    kind = r.choice(list(STEP))
    return [kind, *STEP[kind](r)]


def change_bytes(record, r):
    text = bytearray(json.dumps(record).encode())
    for _ in range(r.randrange(1, 6)):
        at = r.randrange(len(text))
        text[at : at + r.randrange(2)] = bytes(r.randrange(256) for _ in range(r.randrange(3)))
    return text.decode("utf-8", "surrogateescape")


def places(x, path=()):
    """All paths of a JSON value."""
    yield path
    for k, v in x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ():
        yield from places(v, (*path, k))


def change_value(record, r):
    for _ in range(r.randrange(1, 4)):
        path = r.choice(list(places(record))[1:])
        x = record
        for p in path[:-1]:
            x = x[p]
        how = r.randrange(4)
        if how == 0 and isinstance(x, list):
            x[path[-1] : path[-1]] = [x[path[-1]]] * r.choice([1, 3, 100, 3000])
        elif how == 1:
            del x[path[-1]]
            if not record.get("i") or not record.get("r"):
                break
        else:
            x[path[-1]] = r.choice(EXTREME)
    return json.dumps(record)


def change_steps(record, r):
    steps = record["i"][1][1]
    for _ in range(r.randrange(1, 5)):
        how = r.randrange(6)
        at = r.randrange(len(steps) + 1)
        if how == 0:
            steps[at:at] = [step(r) for _ in range(r.choice([1, 2, 8]))]
        elif how == 1:
            steps[at:at] = [step(r)] * r.choice([2, 60, 500, 5000])
        elif how == 2:  # every loop unrolled, or a virtual thread, or both
            stages, codes = [r.randrange(8) for _ in range(2)], r.choice([[1], [4], [1, 4], [2, 1]])
            steps += [["AN", s, i, r.choice(codes)] for s in stages for i in range(r.choice([3, 6, 12]))]
        elif how == 3:  # other annotations
            for s in steps:
                if s[0] == "AN" and r.random() < 0.5:
                    s[3] = r.choice([1, 4])
        elif how == 4:  # other lengths
            for s in steps:
                if s[0] == "SP" and r.random() < 0.5:
                    s[4] = [r.choice([n, n, 1, n * r.choice([2, 3, 7, 64, 4096])]) for n in s[4]]
        elif steps:
            steps.pop(at % len(steps))
    for s in steps:
        if s[0] == "PR" and r.random() < 0.5:
            s[3] = r.choice(["auto_unroll_max_step$16384", "auto_unroll_max_step$512"])
    return json.dumps(record)


def change_program(record, r, dag):
    """Steps that are legal one after the other: from a beginning of the real ones on, what is drawn and can be applied; then
    loops, as they are now, get annotations that make a program large."""
    from nestsmith import _core

    steps = record["i"][1][1]
    state = _core.State(dag, json.dumps(steps[: r.randrange(len(steps) + 1)]))

    def try_to(kind, *arguments):
        try:
            state.apply(kind, *arguments)
            return True
        except (ValueError, TypeError, OverflowError):
            return False

    done = tries = 0
    wanted = r.choice([0, 3, 10, 30])
    while done < wanted and tries < 300:
        done, tries = done + try_to(*step(r)), tries + 1
    for stage, (_, kind, _, loops, *_) in enumerate(state.stages()):
        how = r.choice([(), (), (1,), (4,), (1, 4), (2, 1)]) if kind == 1 else ()
        for i in range(len(loops)):
            if how and r.random() < 0.7:
                try_to("AN", stage, i, r.choice(how))
        if how and loops and r.random() < 0.5:
            try_to("PR", stage, 0, f"auto_unroll_max_step${r.choice([512, 16384])}")
    record["i"][1][1] = json.loads(state.steps())
    return json.dumps(record)


def cases(count, seed, world):
    """(name, line, what it is for): the attacks, then changes of real records, `count` in all."""
    records, r = real(world.tasks), random.Random(seed)
    base = own(world.tasks[0], json.loads(BASE))
    out = [(name, line, "network") for name, line in attacks(base).items()]
    while len(out) < count:
        record, where = r.choice(records)
        record, n = json.loads(json.dumps(record)), len(out)
        how = r.choices(["bytes", "value", "steps", "program"], [1, 2, 2, 5])[0]
        if how == "program":
            line = change_program(record, r, world.dags[record["i"][0][0]])
        else:
            line = {"bytes": change_bytes, "value": change_value, "steps": change_steps}[how](record, r)
        out.append((f"{how} {n}", line, where))
    return out


def sample(all_cases, count, seed):
    """As many attacks as changes, always the same ones."""
    r = random.Random(seed)
    changes = [k for k, (name, _, _) in enumerate(all_cases) if name.split()[-1] == str(k)]
    attacks = sorted(set(range(len(all_cases))) - set(changes))
    chosen = r.sample(attacks, min(len(attacks), count // 2)) + r.sample(changes, count - min(len(attacks), count // 2))
    return [all_cases[k] for k in sorted(chosen)]


BASE = """[["CI", 4], ["SP", 2, 0, 1, [1, 1, 1], 1], ["SP", 2, 4, 128, [2, 1, 16], 1], ["SP", 2, 8, 784, [7], 1],
["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]], ["FSP", 5, 0, 1, 2], ["FSP", 5, 3, 2, 2], ["RE", 5, [0, 3, 1, 4, 2, 5]], ["CA", 2, 5, 3],
["FU", 5, [0, 1]], ["AN", 5, 0, 3], ["PR", 2, 0, "auto_unroll_max_step$16"], ["AN", 2, 9, 2], ["AN", 5, 4, 2]]"""


# ---- what is done with a record ----


class World:
    """A network and the tasks of the public logs, made once; every case is handled in a fork of the process that has it."""

    def __init__(self):
        from nestsmith import auto_scheduler
        from nestsmith.auto_scheduler import workload_registry
        from nestsmith.relay import testing

        sys.path[:0] = [str(HERE.parent), str(HERE.parent / "conformance")]
        from networks_of_2021 import dag_of_2021

        import helpers

        self.mod, self.params = testing.mlp.get_workload(1)
        self.tasks, _ = auto_scheduler.extract_tasks(self.mod["main"], self.params, "llvm")
        self.dags = {t.workload_key: t.compute_dag for t in self.tasks}
        dags = [helpers.resnet18_task(k, "p", "pool") for k in range(len(helpers.RESNET18))]
        for record, where in real([]):
            key = record["i"][0][0]
            dag = dag_of_2021(json.loads(key)[1:]) if where == "llvm" else next(d for d in dags if d.workload_key() == key)
            workload_registry.register_workload_tensors(key, dag.tensors)
            self.dags[key] = dag

    def parts(self, path, where):
        """(name, function) of everything that reads the log."""
        import nestsmith as ns
        from nestsmith import _core, auto_scheduler, relay
        from nestsmith.auto_scheduler import log_tools

        read = auto_scheduler.load_records
        yield "read", lambda: sum(1 for _ in read(path))
        yield "best", lambda: str(auto_scheduler.load_best_record(path)[1])
        for mode in ("distill", "best", "merge", "strip", "stats", "plot"):
            yield mode, lambda mode=mode: log_tools._run(log_tools._parser().parse_args(["--mode", mode, "-i", path, "-o", f"{path}.{mode}.svg"]))
        yield "recover", lambda: [auto_scheduler.recover_measure_input(i, rebuild_state=True) for i, _ in read(path)] and None
        yield "learn", lambda: auto_scheduler.XGBModel(seed=1).update_from_file(path)
        if where == "network":
            yield "resume", lambda: auto_scheduler.SketchPolicy(
                self.tasks[0], verbose=0, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(path)]
            ) and None

            def network():
                with auto_scheduler.ApplyHistoryBest(path), ns.transform.PassContext(opt_level=3):
                    return relay.build(self.mod, target="llvm", params=self.params) and None

            yield "build", network
            return

        def operator():
            inputs = [i for i, r in read(path) if r.error_no == 0]
            if not inputs:
                return "none"
            task = auto_scheduler.recover_measure_input(inputs[0]).task
            sch, args = task.apply_best(path)
            if task.target.kind.name in ("llvm", "c"):
                return ns.build(sch, args, task.target) and None
            state = _core.State(task.compute_dag, inputs[0].state.steps())
            return len(_core.candidate_source(state, task.engine_target(), int(task.layout_rewrite_option))[0])

        yield "operator", operator

    def run(self, name, line, where, folder):
        """The report of one case, from a fork that has so much memory and processor time."""
        path = os.path.join(folder, "log.json")
        with open(path, "wb") as f:
            f.write(line.encode("utf-8", "surrogateescape") + b"\n")
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os._exit(self._child(ours, theirs, path, where))
        os.close(theirs)
        text, end = b"", time.monotonic() + PATIENCE
        while select.select([ours], [], [], max(0, end - time.monotonic()))[0] and (piece := os.read(ours, 1 << 16)):
            text += piece
        os.close(ours)
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
        return {
            "name": name, "where": where, "status": status, "parts": [json.loads(x) for x in text.splitlines()],
            "seconds": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss << 10,
        }

    def _child(self, ours, theirs, path, where):
        os.close(ours)
        os.chdir(os.path.dirname(path))
        quiet = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(quiet, fd)
        page = resource.getpagesize()
        size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * page
        resource.setrlimit(resource.RLIMIT_AS, (size + 2 * MEMORY, size + 2 * MEMORY))  # what is asked for, not what is used
        resource.setrlimit(resource.RLIMIT_CPU, (4 * SECONDS, 4 * SECONDS))
        for name, part in self.parts(path, where):
            start = time.process_time()
            try:
                got = {"result": str(part())[:200]}
            except BaseException as e:
                clear = isinstance(e, (ValueError, RuntimeError)) and type(e) not in UNCLEAR
                got = {"error": type(e).__name__, "text": str(e), "clear": clear, "trace": traceback.format_exc()[-1500:]}
            got.update(part=name, seconds=time.process_time() - start)
            os.write(theirs, json.dumps(got).encode() + b"\n")
        return 0


def wrong(report):
    """What is wrong with the report of a case; an empty list if it ended as it should."""
    out = []
    if report["status"] != 0:
        out.append(f"the process ended with status {report['status']}")
    if report["seconds"] > SECONDS:
        out.append(f"{report['seconds']:.1f} s of processor time")
    if report["memory"] > MEMORY:
        out.append(f"{report['memory'] >> 20} MiB")
    for p in report["parts"]:
        if "error" in p and not (p["clear"] and 0 < len(p["text"]) < 1200 and "failed with status" not in p["text"]):
            out.append(f"{p['part']}: {p['error']}: {p['text'][:300]}\n{p['trace']}")
    return out


def main(count, seed, out):
    import tempfile

    world = World()
    todo = cases(max(count, 400), seed, world)
    with open(out, "w", encoding="utf-8") as f, tempfile.TemporaryDirectory() as folder:
        for k, (name, line, where) in enumerate(todo if count >= len(todo) else sample(todo, count, seed)):
            here = os.path.join(folder, str(k))
            os.mkdir(here)
            report = world.run(name, line, where, here)
            report["files"] = sorted(os.listdir(here))
            f.write(json.dumps(report) + "\n")
            f.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
