"""Runs TVM's own unit tests against this package and prints what passes, by family: ``make peer-tests PEER=path``.

The path is a checkout of TVM v0.14 (its tests are read with the package's name replaced), or an archive or folder of tests with ``tests/`` and
``peer/`` in which that is done already. Nothing of TVM is in this repository. Tests that are answered differently on purpose, with the reason,
are in ``differences.txt``. ``--write`` puts the table and this list into docs/from-tvm.md.

A table is of the families that a run has; rows of others on the page stay. ``--read FOLDER`` counts the logs of an earlier run.

usage: run.py PATH [--only TEXT ...] [--write] [--out FOLDER] [--read FOLDER]
"""

from __future__ import annotations

import argparse
import ast
import collections
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "from-tvm.md"
FOLDERS = {"unittest": "unittest", "relay": "relay", "topi/python": "topi/python", "topi": "topi/python", "frontend/pytorch": "frontend/pytorch",
           "frontend/onnx": "frontend/onnx"}  # fmt: skip
FAMILIES = ("auto_scheduler", "autotvm", "te", "tir", "arith", "runtime", "rpc", "target", "ir")  # of the folder unittest
SECONDS = int(os.environ.get("SECONDS_PER_FILE", "300"))
_IMPORTS = (
    (re.compile(r"^(\s*)import tvm$", re.M), r"\1import nestsmith as tvm"),
    (re.compile(r"^(\s*)import tvm((?:\.\w+)+)$", re.M), r"\1import nestsmith\2; import nestsmith as tvm"),
    (re.compile(r"^(\s*)import tvm((?:\.\w+)*) as ", re.M), r"\1import nestsmith\2 as "),
    (re.compile(r"^(\s*)from tvm((?:\.\w+)*) import ", re.M), r"\1from nestsmith\2 import "),
)


def renamed(text):
    """The text of a Python file with the package's name replaced."""
    for pattern, by in _IMPORTS:
        text = pattern.sub(by, text)
    return text


def _copy(source, target):
    for path in sorted(source.rglob("*.py")):
        out = target / path.relative_to(source)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(renamed(path.read_text()))


def _checkout(peer, work):
    """Tests of a checkout, with the helpers that they import from the package."""
    for where, to in FOLDERS.items():
        source = peer / "tests" / "python" / where
        if source.is_dir() and where not in ("topi",):
            _copy(source, work / "tests" / to)
    _copy(peer / "python" / "tvm" / "topi" / "testing", work / "peer" / "topi" / "testing")
    for name in ("auto_scheduler", "autotvm", "tir"):
        path = peer / "python" / "tvm" / "testing" / f"{name}.py"
        if path.is_file():
            out = work / "peer" / "testing" / path.name
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(renamed(path.read_text()))
    shutil.copy(HERE / "plugin.py", work / "tests" / "conftest.py")


def unpacked(peer, work):
    """The folder with ``tests/`` and ``peer/``. Raises SystemExit for something else."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    if peer.is_file():
        with tarfile.open(peer) as archive:
            archive.extractall(work, filter="data")
    elif (peer / "python" / "tvm").is_dir():
        _checkout(peer, work)
    elif (peer / "tests").is_dir():
        shutil.copytree(peer, work, dirs_exist_ok=True)
    if not (work / "tests").is_dir():
        raise SystemExit(f"{peer} is neither a checkout of TVM nor an archive or folder of its tests (tests/, peer/)")
    return work / "tests"


def family(name):
    """The family of a test file."""
    *folders, last = name.split("/")
    if folders == ["unittest"]:
        return next((f"unittest {f}" for f in FAMILIES if last.startswith(f"test_{f}_")), "unittest, others")
    if folders == ["relay"]:
        return "relay op levels" if "_op_level" in last else "relay, others"
    return " ".join(folders)


def _functions(path):
    tree = ast.parse(path.read_text())
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test")]
    return max(len(found), 1)


def run_file(tests, path, log):
    """Runs a file of tests; what pytest says goes into a log."""
    name = path.relative_to(tests).as_posix()
    places = [ROOT / "python", tests / "unittest", tests / "topi" / "python", tests / "relay"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "OMP_NUM_THREADS": "1", "NESTSMITH_LOG_DIR": ""}
    limit = ["-p", "pytest_timeout", "--timeout=60"] if _has("pytest_timeout") else []
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "--import-mode=importlib", "-o", "addopts=", *limit, name]
    with log.open("w") as f:
        try:
            subprocess.run(command, cwd=tests, env=env, stdout=f, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            pass


def outcome(path, name, log):
    """(counts of passed, failed and skipped tests, failing tests) by the log of a file"""
    text = log.read_text(errors="replace")
    last = text.splitlines()[-1] if text else ""
    said = collections.Counter({w: int(n) for n, w in re.findall(r"(\d+) (passed|failed|error|skipped|xfailed)", last)})
    failing = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.M)
    if said["error"] or not said:  # not collected: all its tests have failed
        if not said["passed"] + said["failed"]:
            return collections.Counter(failed=_functions(path)), [name]
        said["failed"] += said["error"]
    return collections.Counter(passed=said["passed"] + said["xfailed"], failed=said["failed"], skipped=said["skipped"]), failing


def _has(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def differences():
    """From test (or file) to reason."""
    lines = (line.strip() for line in (HERE / "differences.txt").read_text().splitlines())
    pairs = (re.split(r":\s", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {test.removeprefix("./"): reason for test, reason in pairs}


def table(counts):
    """The table by family, in Markdown."""
    rows = ["| Family | Tests that run on a CPU | Pass | Other answer on purpose | Share that passes |", "|---|---|---|---|---|"]
    total = collections.Counter()
    for name, c in [*sorted(counts.items()), ("all", total)]:
        n = c["passed"] + c["failed"]
        if n:
            rows.append(f"| {name} | {n} | {c['passed']} | {c['other']} | {100 * c['passed'] / n:.0f} % |")
        total.update(c if c is not total else {})
    return "\n".join(rows)


def merged(counts, text):
    """The counts of a run, and those of the other families in a page's table."""
    rows = re.findall(r"^\| ([\w/, ]+) \| (\d+) \| (\d+) \| (\d+) \| \d+ % \|$", text, re.M)
    old = {name: collections.Counter(passed=int(p), failed=int(n) - int(p), other=int(o)) for name, n, p, o in rows if name != "all"}
    return {**old, **counts}


def reasons():
    """The list of differences, in Markdown: one line per reason."""
    by_reason = collections.defaultdict(list)
    for test, reason in differences().items():
        by_reason[reason].append(f"`{test}`")
    return "\n".join(f"| {', '.join(tests)} | {reason} |" for reason, tests in sorted(by_reason.items(), key=lambda x: x[1][0]))


def write(page, marks):
    """Puts texts between their marks on the page."""
    text = page.read_text()
    for mark, body in marks.items():
        begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        head, _, rest = text.partition(begin)
        if not rest or end not in rest:
            raise SystemExit(f"{page} has no place for {mark}")
        text = head + begin + body + "\n" + end + rest.partition(end)[2]
    page.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", type=pathlib.Path, nargs="?", help="checkout of TVM v0.14, or archive or folder of its tests")
    parser.add_argument("--only", nargs="*", default=[], help="files whose name has one of these texts")
    parser.add_argument("--write", action="store_true", help="put the table and the reasons into docs/from-tvm.md")
    parser.add_argument("--read", type=pathlib.Path, help="folder with logs of an earlier run, which are counted instead")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "peer", help="for the tests and their logs")
    args = parser.parse_args()
    listed = {"differences": "| Test of TVM | Why |\n|---|---|\n" + reasons()}
    if args.peer is None:
        if args.write:
            return write(PAGE, listed)
        raise SystemExit("make peer-tests PEER=path: a checkout of TVM v0.14, or an archive of its tests")
    tests, logs = unpacked(args.peer.resolve(), args.out / "suite"), args.out / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    counts, known, new = collections.defaultdict(collections.Counter), differences(), []
    files = [p for p in sorted(tests.rglob("test_*.py")) if not args.only or any(t in p.name for t in args.only)]
    for path in files:
        name = path.relative_to(tests).as_posix()
        log = (args.read or logs) / (name.replace("/", "_") + ".log")
        if args.read is None:
            run_file(tests, path, log)
        elif not log.is_file():
            continue
        found, failing = outcome(path, name, log)
        other = [f for f in failing if any(fnmatch.fnmatchcase(f.partition("[")[0], k) or f.startswith(k + "::") for k in known)]
        new += [f for f in failing if f not in other]
        found["other"] = len(other)
        counts[family(name)].update(found)
        print(f"{name}: {found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped", flush=True)
    print("\nfailing without a reason in tests/peer/differences.txt:", *new, sep="\n  ")
    print("\n" + table(counts) + f"\n\nlogs: {logs}")
    if args.write:
        write(PAGE, {"table": table(merged(counts, PAGE.read_text())), **listed})
    return None


if __name__ == "__main__":
    main()
