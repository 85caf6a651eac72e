/* nsrt: runs networks that nestsmith has compiled. For C99 and later, and C++.
 *
 *     nsrt_model *model;
 *     nsrt_context *context;
 *     if (nsrt_open("net.so", &model) || nsrt_context_create(model, NULL, 0, &context) ||
 *         nsrt_set(context, "data", image, sizeof image) || nsrt_run(context) ||
 *         nsrt_get(context, 0, scores, sizeof scores))
 *       fprintf(stderr, "%s\n", nsrt_message());
 *     nsrt_context_free(context);
 *     nsrt_close(model);
 *
 * A model never changes while contexts stand on it, and threads share it: its weights are in memory once. A context has the values
 * between kernels. Threads that run at the same time need a context each; of a context that another thread uses, calls return NSRT_BUSY.
 * An error concerns the call that returns it and no other thread. Pointers to models, contexts and pools may be NULL where they are freed.
 *
 * A model file contains programs, which are run: load only files that you trust.
 */
#ifndef NSRT_H
#define NSRT_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#define NSRT_API __attribute__((visibility("default")))
#else
#define NSRT_API
#endif

/* 10000 * major + 100 * minor + patch. Functions and fields are only added within a major version. */
#define NSRT_VERSION 100
NSRT_API int32_t nsrt_version(void); /* of the library */

typedef enum {
  NSRT_OK = 0,
  NSRT_INVALID,     /* an argument is wrong, or the file is damaged */
  NSRT_MEMORY,      /* out of memory */
  NSRT_UNAVAILABLE, /* this machine, processor, device or driver cannot do it; or a kernel met an index out of range */
  NSRT_IO,          /* the file cannot be read */
  NSRT_BUSY,        /* another thread is using the context; or the model has contexts and cannot be changed */
  NSRT_INTERNAL     /* a defect of this library */
} nsrt_status;
/* What the last call of this thread that failed says. Valid until the thread's next call that fails. */
NSRT_API const char *nsrt_message(void);

/* ---- tensors: the memory layout of DLPack's DLTensor, which may be passed in its place ---- */
typedef struct {
  void *data;
  struct {
    int32_t device_type, device_id; /* DLPack: 1 CPU, 2 CUDA, 4 OpenCL */
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits; /* code: 0 int, 1 unsigned int, 2 float, 4 bfloat, 6 bool */
    uint16_t lanes;
  } dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: rows lie one behind the other */
  uint64_t byte_offset;
} nsrt_tensor;

/* ---- models ---- */
typedef struct nsrt_model nsrt_model;
/* The file stays mapped: it must not be changed while the model is open. It may be renamed or deleted. */
NSRT_API nsrt_status nsrt_open(const char *path, nsrt_model **model);
/* The bytes must stay unchanged as long as the model is open. name: of the model in messages. */
NSRT_API nsrt_status nsrt_open_memory(const void *data, size_t size, const char *name, nsrt_model **model);
/* Contexts that are left keep the model's memory until they are freed. */
NSRT_API void nsrt_close(nsrt_model *model);

typedef struct {
  const char *name, *dtype; /* dtype: "float32", "bfloat16", ... */
  int32_t ndim;
  const int64_t *shape;
  size_t bytes;
} nsrt_value;
typedef struct {
  const char *name, *target;            /* target: what it was compiled for */
  int32_t device_type;                  /* where it runs */
  int32_t n_inputs, n_outputs, n_weights; /* inputs: the user's, without weights */
  const nsrt_value *input, *output, *weight; /* outputs are called "output_0", ... */
  size_t weight_bytes;  /* of all weights */
  size_t context_bytes; /* memory of a context; workspaces of GPU programs, which contexts share, come to it */
} nsrt_info;
/* Pointers in *info are valid as long as the model. size: sizeof(nsrt_info). */
NSRT_API nsrt_status nsrt_describe(const nsrt_model *model, nsrt_info *info, size_t size);
/* Another value for a weight, by its name in the file: for contexts that are created later, on all devices. The tensor is on the CPU
 * and is copied. NSRT_BUSY while the model has contexts. */
NSRT_API nsrt_status nsrt_replace(nsrt_model *model, const char *weight, const nsrt_tensor *value);

/* ---- threads ---- */
typedef struct nsrt_pool nsrt_pool;
NSRT_API nsrt_status nsrt_pool_create(int32_t threads, nsrt_pool **pool); /* threads: the caller of nsrt_run is one of them */
NSRT_API void nsrt_pool_free(nsrt_pool *pool); /* after the contexts that use it */
/* Calls body(env, begin, end) on ranges that together cover [0, n) once each, in any threads, and returns 0 when all are done. */
typedef int32_t (*nsrt_parallel)(void *user, void (*body)(void *env, int64_t begin, int64_t end), void *env, int64_t n);

/* ---- contexts ---- */
typedef struct nsrt_context nsrt_context;
typedef struct {
  int32_t device_id;      /* which GPU */
  int32_t threads;        /* of a CPU: 1: the caller's alone; n: a pool of the context's own; 0: a pool that all contexts of the
                             model share, of NESTSMITH_NUM_THREADS or as many threads as there are cores */
  nsrt_pool *pool;        /* shared with others; or NULL */
  nsrt_parallel parallel; /* the caller's threads; or NULL */
  void *user;             /* for parallel */
} nsrt_options;
/* options: NULL: zeros. size: sizeof(nsrt_options). */
NSRT_API nsrt_status nsrt_context_create(nsrt_model *model, const nsrt_options *options, size_t size, nsrt_context **context);
NSRT_API void nsrt_context_free(nsrt_context *context);
/* Copies a value in (contiguous, bytes as in nsrt_value). */
NSRT_API nsrt_status nsrt_set(nsrt_context *context, const char *input, const void *data, size_t bytes);
/* Waits, and copies an output out. */
NSRT_API nsrt_status nsrt_get(nsrt_context *context, int32_t output, void *data, size_t bytes);
/* Uses the tensor's memory as an input or output ("output_0", ...) from now on, without copies: contiguous, on the context's device,
 * aligned to 64 bytes. NULL: the context's own memory again. */
NSRT_API nsrt_status nsrt_bind(nsrt_context *context, const char *name, const nsrt_tensor *tensor);
/* Returns before it is done on a GPU. */
NSRT_API nsrt_status nsrt_run(nsrt_context *context);
NSRT_API nsrt_status nsrt_sync(nsrt_context *context);

typedef struct {
  const char *node, *function; /* function: of the program that it calls */
  double seconds;
} nsrt_kernel;
/* Times every kernel in at least so many runs. *n: how many kernels there are, of which at most `room` are stored. */
NSRT_API nsrt_status nsrt_profile(nsrt_context *context, int32_t runs, nsrt_kernel *kernel, int32_t room, int32_t *n);

#ifdef __cplusplus
}
#endif
#endif
