/* gen_manifest: the JSON that goes with a binary. The format is documented in codegen.h; readers are the device modules
 * and exported libraries, so a change of meaning needs a new format number.
 */
#include <cjson/cJSON.h>
#include <string.h>
#include "codegen/gen.h"

enum { MANIFEST_FORMAT = 1 };

static const char *dtype_text(IrCtx *c, DType t) {
  StrBuf b;
  sb_init(&b, ir_arena(c));
  dtype_print(&b, dtype_lanes(t, 1));
  return sb_str(&b);
}

static int64_t fixed(IrCtx *c, ExprId e, const char *what, const char *name) {
  int64_t v;
  if (e && ex_const_int(c, e, &v)) return v;
  err_raise(ir_err(c), NS_ERR_VALUE, "%s of buffer '%s' is not constant; programs need static shapes", what, name);
}

static int64_t buffer_bytes(IrCtx *c, BufferId b) {
  const IrBuffer *info = ir_buffer(c, b);
  int64_t n = 1, bytes;
  if (info->external || !info->size) {
    for (int d = 0; d < info->rank; d++)
      if (!i64_mul(n, fixed(c, info->extent[d], "the shape", info->name), &n))
        err_raise(ir_err(c), NS_ERR_VALUE, "buffer '%s' is too large", info->name);
  } else
    n = fixed(c, info->size, "the size", info->name);
  if (!i64_mul(n, dtype_bytes(dtype_lanes(info->type, 1)), &bytes))
    err_raise(ir_err(c), NS_ERR_VALUE, "buffer '%s' is too large", info->name);
  return bytes;
}

static cJSON *buffer(IrCtx *c, BufferId b) {
  const IrBuffer *info = ir_buffer(c, b);
  cJSON *o = cJSON_CreateObject();
  cJSON_AddStringToObject(o, "name", info->name);
  cJSON_AddStringToObject(o, "dtype", dtype_text(c, info->type));
  if (info->external) {
    cJSON *shape = cJSON_AddArrayToObject(o, "shape");
    for (int d = 0; d < info->rank; d++)
      cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)fixed(c, info->extent[d], "the shape", info->name)));
  }
  cJSON_AddNumberToObject(o, "bytes", (double)buffer_bytes(c, b));
  cJSON_AddNumberToObject(o, "align", GEN_ALIGN);
  return o;
}

static void layout(cJSON *o, const Relayout *r) {
  cJSON *from = cJSON_AddArrayToObject(o, "from_shape"), *axis = cJSON_AddArrayToObject(o, "axis");
  for (int i = 0; i < r->n_from; i++) cJSON_AddItemToArray(from, cJSON_CreateNumber((double)r->from[i]));
  for (int i = 0; i < r->n; i++) cJSON_AddItemToArray(axis, cJSON_CreateNumber(r->axis[i]));
}

static bool arg_read_only(const Program *p, BufferId b) {
  for (int i = 0; i < p->n_kernels; i++)
    for (int j = 0; j < p->kernel[i].n_param; j++)
      if (p->kernel[i].param[j] == b && !p->kernel[i].read_only[j]) return false;
  return true;
}

static void dims(cJSON *o, const char *key, const int64_t v[3]) {
  cJSON *a = cJSON_AddArrayToObject(o, key);
  for (int i = 0; i < 3; i++) cJSON_AddItemToArray(a, cJSON_CreateNumber((double)(v[i] > 0 ? v[i] : 1)));
}

static cJSON *kernel(const Program *p, const Kernel *k) {
  cJSON *o = cJSON_CreateObject();
  cJSON_AddStringToObject(o, "name", k->name);
  cJSON *params = cJSON_AddArrayToObject(o, "params");
  for (int i = 0; i < k->n_param; i++) {
    int at = -1;
    bool work = false;
    for (int j = 0; j < p->f.n_args && at < 0; j++)
      if (p->f.arg[j] == k->param[i]) at = j;
    for (int j = 0; j < p->n_work && at < 0; j++)
      if (p->work[j] == k->param[i]) at = j, work = true;
    if (at < 0)
      err_raise(ir_err(p->f.ctx), NS_ERR_INTERNAL,
                "parameter '%s' of kernel '%s' is neither an argument nor a workspace",
                ir_buffer(p->f.ctx, k->param[i])->name, k->name);
    cJSON *q = cJSON_CreateObject();
    cJSON_AddStringToObject(q, "kind", work ? "work" : "arg");
    cJSON_AddNumberToObject(q, "index", at);
    cJSON_AddBoolToObject(q, "read_only", k->read_only[i]);
    cJSON_AddItemToArray(params, q);
  }
  dims(o, "grid", k->grid);
  dims(o, "block", k->block);
  int64_t dyn = gen_dynamic_shared(p, k);
  cJSON_AddNumberToObject(o, "shared_bytes", (double)(dyn ? 0 : k->shared_bytes));
  cJSON_AddNumberToObject(o, "dyn_shared_bytes", (double)dyn);
  cJSON_AddNumberToObject(o, "local_bytes", (double)k->local_bytes);
  return o;
}

/* Kernels of GPU programs are named ENTRY_kernel<k>. */
static const char *entry_name(const Program *p) {
  if (!p->n_kernels) return "empty";
  const char *name = p->kernel[0].name, *end = p->f.target.kind == TG_CPU ? NULL : strstr(name, "_kernel");
  for (const char *next = end; next; next = strstr(next + 1, "_kernel")) end = next;
  if (p->f.target.kind == TG_CPU) return gen_entry(ir_arena(p->f.ctx), name);
  return end ? arena_printf(ir_arena(p->f.ctx), "%.*s", (int)(end - name), name) : name;
}

/* cJSON's memory is not the arena's: it must be freed whatever is raised on the way. */
typedef struct {
  const Program *p;
  cJSON *root;
} Job;
static void fill(void *arg) {
  Job *job = arg;
  const Program *p = job->p;
  IrCtx *c = p->f.ctx;
  const Target *t = &p->f.target;
  static const char *const NAME[] = {[TG_CPU] = "c", [TG_CUDA] = "cuda", [TG_OPENCL] = "opencl"};
  cJSON *o = job->root;
  cJSON_AddNumberToObject(o, "format", MANIFEST_FORMAT);
  cJSON_AddStringToObject(o, "target", NAME[t->kind]);
  const char *entry = entry_name(p);
  cJSON_AddStringToObject(o, "entry", entry);
  if (p->n_kernels && t->kind == TG_CPU && strcmp(entry, p->kernel[0].name) != 0)
    cJSON_AddStringToObject(o, "name", p->kernel[0].name); /* what the user calls it */
  cJSON_AddNumberToObject(o, "sm", t->kind == TG_CUDA ? t->gpu.sm : 0);
  cJSON_AddNumberToObject(o, "fast_math", t->fast_math);
  cJSON *args = cJSON_AddArrayToObject(o, "args"), *work = cJSON_AddArrayToObject(o, "work"),
        *kernels = cJSON_AddArrayToObject(o, "kernels");
  for (int i = 0; i < p->f.n_args; i++) {
    cJSON *b = buffer(c, p->f.arg[i]);
    cJSON_AddBoolToObject(b, "read_only", arg_read_only(p, p->f.arg[i]));
    for (int k = 0; k < p->n_relayout; k++)
      if (p->relayout[k].tensor == i) layout(b, &p->relayout[k]);
    cJSON_AddItemToArray(args, b);
  }
  for (int i = 0; i < p->n_work; i++) cJSON_AddItemToArray(work, buffer(c, p->work[i]));
  for (int i = 0; i < p->n_kernels; i++) cJSON_AddItemToArray(kernels, kernel(p, &p->kernel[i]));
}

char *gen_manifest(const Program *p) {
  IrCtx *c = p->f.ctx;
  Job job = {p, cJSON_CreateObject()};
  ErrCode code = err_try(ir_err(c), fill, &job);
  char *text = code == NS_OK ? cJSON_PrintUnformatted(job.root) : NULL;
  cJSON_Delete(job.root);
  if (code != NS_OK) err_rethrow(ir_err(c), code);
  if (!text) err_raise(ir_err(c), NS_ERR_MEMORY, "out of memory while writing a manifest");
  char *copy = arena_strdup(ir_arena(c), text);
  cJSON_free(text);
  return copy;
}
