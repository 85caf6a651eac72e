"""A C program with the library of finished programs runs what this version exports."""

import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import relay

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = r"""
#include "graph/graph.h"
#include <stdio.h>
#include <stdlib.h>
typedef struct { Err e; char *data; size_t n; float in[32], out[12]; } Run;
static void run(void *arg) {
  Run *r = arg;
  Device *d = dev_open(&r->e, DEV_CPU, 0);
  Network *n = network_load(&r->e, d, r->data, r->n, "net.so");
  network_set(n, "x", r->in, sizeof r->in);
  graph_exec_run(network_exec(n));
  network_get(n, 0, r->out, sizeof r->out);
  network_free(n);
  dev_close(d);
}
int main(int argc, char **argv) {
  static Run r;
  FILE *f = fopen(argv[argc - 1], "rb");
  fseek(f, 0, SEEK_END);
  r.n = (size_t)ftell(f);
  rewind(f);
  r.data = malloc(r.n);
  if (fread(r.data, 1, r.n, f) != r.n) return 2;
  for (int i = 0; i < 32; i++) r.in[i] = (float)i;
  err_init(&r.e);
  if (err_try(&r.e, run, &r) != NS_OK) return fprintf(stderr, "%s\n", r.e.msg), 1;
  for (int i = 0; i < 12; i++) printf("%g ", r.out[i]);
  return 0;
}
"""


@pytest.mark.full
@pytest.mark.skipif(not (shutil.which("make") and shutil.which("pkg-config")), reason="needs make and pkg-config")
def test_a_c_program_runs_what_is_exported(tmp_path):
    build = tmp_path / "build"
    subprocess.run(["make", "-s", "-j2", "QUIET=1", f"BUILD={build}", f"PY={sys.executable}", "lib-rt"], cwd=ROOT, check=True)
    x, w = relay.var("x", shape=(4, 8), dtype="float32"), relay.var("w", shape=(3, 8), dtype="float32")
    weight = np.arange(24, dtype="float32").reshape(3, 8) - 12
    mod = ns.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    relay.build(mod, "llvm", params={"w": weight}).export_library(tmp_path / "net.so")
    (tmp_path / "main.c").write_text(PROGRAM)
    libs = subprocess.run(["pkg-config", "--libs", "libcjson"], capture_output=True, text=True, check=True).stdout.split()
    command = ["cc", "-D_GNU_SOURCE", f"-I{ROOT / 'csrc'}", "main.c", build / "libnestsmith_rt.a", *libs, "-ldl", "-lpthread", "-lm"]
    subprocess.run([*command, "-o", "main"], cwd=tmp_path, check=True)
    out = subprocess.run(["./main", "net.so"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    want = np.maximum(np.arange(32, dtype="float32").reshape(4, 8) @ weight.T, 0)
    assert np.array_equal(np.array(out.split(), "float32").reshape(4, 3), want)
