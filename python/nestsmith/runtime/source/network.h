/* What network.c says of the network, and what device.c does. */
#ifndef NETWORK_H
#define NETWORK_H
#include <stddef.h>
#include <stdint.h>

typedef void (*Body)(void *env, int64_t begin, int64_t end);
typedef int32_t (*Parallel)(void *pool, Body body, void *env, int64_t n);
typedef int32_t (*Entry)(void *const *args, void *const *work, Parallel parallel, void *pool);

typedef struct { /* a tensor, which lies in a storage; several share one, at different times */
  int storage;
  size_t at, bytes;
} Value;
typedef struct { /* what a kernel of a GPU is given: an argument of its program, or a workspace */
  int work, index;
} Param;
typedef struct { /* on a GPU; kernels of a program run one after the other */
  const char *name;
  unsigned grid[3], block[3], shared;
  int n_params;
  const Param *param;
} Kernel;
typedef struct {
  const char *file; /* what it is compiled to, or its source */
  Entry entry;      /* on a CPU; else NULL */
  int n_work, n_kernels;
  const size_t *work; /* bytes of the workspaces, which begin as zeros */
  const Kernel *kernel;
  int report; /* the workspace whose first word is not 0 after an index was out of range; -1: there is none */
} Program;
typedef struct {
  int program, n_args;
  const int *arg; /* values */
} Call;
typedef struct {
  const char *name, *type; /* type: element type and shape */
  int value;
} Tensor;

extern const char *const network_name;
extern const int n_storages, n_programs, n_calls, n_weights, n_inputs, n_outputs;
extern const size_t storage_bytes[];
extern const Value value[];
extern const Program program[];
extern const Call call[];
extern const Tensor weight[], input[], output[]; /* weights: in the order in which they lie in weights.bin */

void fail(const char *what, const char *which); /* prints and ends the process */
void device_open(void);
void *device_memory(size_t bytes); /* zeros */
void device_write(void *to, const void *from, size_t bytes);
void device_read(void *to, const void *from, size_t bytes); /* waits for what was called before */
void device_load(int index);                                /* program[index] */
int device_call(int index, void *const *args, void *const *work); /* 0, or the program's error */
#endif
