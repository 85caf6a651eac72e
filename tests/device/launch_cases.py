"""A driver that writes down which launches it is asked for, and programs for them."""

import os

import nestsmith as ns
from nestsmith import _core, te

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))

# SM: compute capability (90). EX, MAKE: what an early launch, or making a graph that has one, answers.
DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned g[3], b[3], shared; void *stream; struct { int id, pad; char value[64]; } *attrs; unsigned n; } How;
static int capturing, early;
static int env(const char *n, int v) { return getenv(n) ? atoi(getenv(n)) : v; }
static int launch(const char *how, const unsigned *g, const unsigned *b) {
  fprintf(stderr, "%s%s %u,%u,%u %u\n", capturing ? "captured " : "", how, g[0], g[1], g[2], b[0]);
  return 0;
}
int cuGetErrorName(int r, const char **s) { *s = "CUDA_ERROR_TEST"; return 0; }
int cuGetErrorString(int r, const char **s) { *s = "as the test says"; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { int sm = env("SM", 90); *v = a == 75 ? sm / 10 : a == 76 ? sm % 10 : 64; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)8; return 0; }
int cuMemAlloc_v2(void **p, size_t n) { *p = aligned_alloc(256, (n + 255) / 256 * 256); return 0; }
int cuFuncGetAttribute(int *v, int a, void *f) { *v = 1024; return 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx) {
  return launch("plain", (unsigned[]){gx, gy, gz}, (unsigned[]){bx});
}
int cuLaunchKernelEx(const How *h, void *f, void **p, void **x) {
  char how[99] = "";
  for (unsigned i = 0; i < h->n && !h->shared; i++) {
    int one;
    struct { void *base; size_t bytes; float ratio; int hit, miss; } w;
    memcpy(&one, h->attrs[i].value, sizeof one);
    memcpy(&w, h->attrs[i].value, sizeof w);
    if (h->attrs[i].id == 6 && one == 1) early++, strcat(how, "early");
    if (h->attrs[i].id == 1 && w.ratio == 1 && w.hit == 1 && w.miss == 0)
      sprintf(how + strlen(how), " %zu bytes of %s", w.bytes, w.base == *(void **)p[0] ? "the first" : "another");
  }
  launch(how[0] ? how + (how[0] == ' ') : "wrong", h->g, h->b);
  return env("EX", 0);
}
int cuStreamBeginCapture_v2(void *q, int mode) { capturing = 1; early = 0; return 0; }
int cuStreamEndCapture(void *q, void **g) { capturing = 0; *g = (void *)16; return 0; }
int cuGraphInstantiateWithFlags(void **x, void *g, unsigned long long f) { *x = (void *)24; return early ? env("MAKE", 0) : 0; }
"""


def program(n_kernels):
    tensors = [te.placeholder((1000,), name="A")]
    for k in range(n_kernels):
        tensors.append(te.compute((1000,), lambda i, t=tensors[-1]: t[i] + 1.0, name=f"B{k}"))
    s = te.create_schedule(tensors[-1].op)
    for t in tensors[1:]:
        block, thread = s[t].split(t.op.axis[0], 64)
        s[t].bind(block, te.thread_axis("blockIdx.x"))
        s[t].bind(thread, te.thread_axis("threadIdx.x"))
    return _core.program(s._core, [tensors[0], tensors[-1]], ns.target.Target("cuda -arch=sm_90").engine(overlap=True), "f")[:2]
