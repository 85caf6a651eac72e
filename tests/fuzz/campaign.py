"""Runs a fuzz target in rounds until it has seen a given number of inputs in all.

    python tests/fuzz/campaign.py build/fuzz/record 100000000

Every finished round adds a line (seconds since 1970, inputs, seconds, longest input) to DIR/counts, so a stopped
campaign goes on where it was; a round that was cut off does not count. What is found new stays in DIR/found, a failing
input is written to DIR/crash-..., and the campaign ends there with status 1. Three rounds of four have short inputs,
which are many times faster.
"""

import argparse
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def total(path):
    """Sum of the inputs of all finished rounds."""
    if not os.path.exists(path):
        return 0
    with open(path, encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target", help="a program made by `make fuzz`")
    parser.add_argument("inputs", type=int, help="stop when all rounds together have seen this many")
    parser.add_argument("--dir", help="default: /tmp/nestsmith-fuzz-TARGET")
    parser.add_argument("--round", type=int, default=120, help="seconds of a round")
    parser.add_argument("--max-len", type=int, nargs="+", default=[500, 500, 500, 2100], help="of the rounds, in turn")
    args = parser.parse_args()
    name = os.path.basename(args.target)
    folder = args.dir or f"/tmp/nestsmith-fuzz-{name}"
    counts, found = os.path.join(folder, "counts"), os.path.join(folder, "found")
    os.makedirs(found, exist_ok=True)
    env = dict(os.environ, ASAN_OPTIONS="quarantine_size_mb=16:detect_leaks=1")
    number = 0
    while (done := total(counts)) < args.inputs:
        longest = args.max_len[number % len(args.max_len)]
        number += 1
        begin = time.time()
        result = subprocess.run(
            [args.target, f"-max_total_time={args.round}", f"-max_len={longest}", "-timeout=20", "-rss_limit_mb=2048",
             "-print_final_stats=1", "-verbosity=0", f"-dict={HERE}/log.dict", f"-artifact_prefix={folder}/", found,
             f"{HERE}/corpus/{name}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=env,
        )
        units = re.search(r"executed_units:\s*(\d+)", result.stderr)
        if result.returncode or not units:
            print(result.stderr[-6000:], f"\n{name}: failed after {done} inputs of earlier rounds", flush=True)
            return 1
        with open(counts, "a", encoding="ascii") as f:
            f.write(f"{int(begin)} {units[1]} {time.time() - begin:.0f} {longest}\n")
        print(f"{name}: {done + int(units[1])} inputs, {int(units[1]) / (time.time() - begin):.0f}/s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
