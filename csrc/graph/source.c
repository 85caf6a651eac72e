/* network.c of a network that is exported as source (export_source): its values, programs and calls as tables in C. The types are
 * those of python/nestsmith/runtime/source/network.h, where the code that reads the tables is.
 *
 * Values lie where the storage plan puts them. Workspaces are separate for each program. */
#include "graph/graph.h"
#include <string.h>

typedef struct {
  Arena *a;
  StrBuf *out;
  const NetworkFile *f;
  const char *suffix; /* of the files of programs */
} Source;

static const char *suffix_of(DevType device) { return device == DEV_CPU ? NULL : device == DEV_CUDA ? "cubin" : "cl"; }

static void put_includes(const Source *s) {
  sb_puts(s->out, "/* Made by nestsmith: what main.c runs. */\n#include \"network.h\"\n\n");
  sb_puts(s->out, "const char *const network_name = ");
  sb_json(s->out, s->f->c->name);
  sb_puts(s->out, ";\n");
  for (int i = 0; !s->suffix && i < s->f->c->n_programs; i++)
    sb_printf(s->out, "int32_t %s(void *const *args, void *const *work, Parallel parallel, void *pool);\n",
              s->f->manifest[i]->entry);
}

static void put_values(const Source *s) {
  const Graph *g = s->f->g;
  sb_printf(s->out, "const int n_storages = %d;\nconst size_t storage_bytes[] = {", (int)g->n_storage);
  for (int i = 0; i < g->n_storage; i++) sb_printf(s->out, "%lld, ", (long long)g->storage_bytes[i]);
  sb_puts(s->out, "0};\nconst Value value[] = {\n");
  for (int i = 0; i < g->n_entries; i++)
    sb_printf(s->out, "  {%d, %lld, %lld}, /* %d */\n", (int)g->entry[i].storage, (long long)g->entry[i].at,
              (long long)g->entry[i].bytes, i);
  sb_puts(s->out, "  {0, 0, 0}};\n");
}

static void put_kernel(const Source *s, const ManKernel *k, int program, int number) {
  sb_printf(s->out, "  {\"%s\", {%lld, %lld, %lld}, {%lld, %lld, %lld}, %lld, %d, param_%d_%d},\n", k->name,
            (long long)k->grid[0], (long long)k->grid[1], (long long)k->grid[2], (long long)k->block[0],
            (long long)k->block[1], (long long)k->block[2], (long long)k->dyn_shared_bytes, (int)k->n_param, program,
            number);
}

/* The tables that one program points to. */
static void put_parts(const Source *s, int i) {
  const Manifest *m = s->f->manifest[i];
  sb_printf(s->out, "static const size_t work_%d[] = {", i);
  for (int k = 0; k < m->n_work; k++) sb_printf(s->out, "%lld, ", (long long)m->work[k].bytes);
  sb_puts(s->out, "0};\n");
  if (!s->suffix) return;
  for (int k = 0; k < m->n_kernels; k++) {
    sb_printf(s->out, "static const Param param_%d_%d[] = {", i, k);
    for (int p = 0; p < m->kernel[k].n_param; p++)
      sb_printf(s->out, "{%d, %d}, ", m->kernel[k].param[p].work, (int)m->kernel[k].param[p].index);
    sb_puts(s->out, "{0, 0}};\n");
  }
  sb_printf(s->out, "static const Kernel kernel_%d[] = {\n", i);
  for (int k = 0; k < m->n_kernels; k++) put_kernel(s, &m->kernel[k], i, k);
  sb_puts(s->out, "  {0}};\n");
}

static void put_programs(const Source *s) {
  int n = s->f->c->n_programs;
  for (int i = 0; i < n; i++) put_parts(s, i);
  sb_printf(s->out, "const int n_programs = %d;\nconst Program program[] = {\n", n);
  for (int i = 0; i < n; i++) {
    const Manifest *m = s->f->manifest[i];
    if (s->suffix)
      sb_printf(s->out, "  {\"kernels/%s.%s\", NULL, %d, %d, work_%d, kernel_%d, %d},\n", m->entry, s->suffix,
                (int)m->n_work, (int)m->n_kernels, i, i, (int)m->report);
    else
      sb_printf(s->out, "  {\"kernels/%s.c\", %s, %d, 0, work_%d, NULL, %d},\n", m->entry, m->entry, (int)m->n_work, i,
                (int)m->report);
  }
  sb_puts(s->out, "  {0}};\n");
}

static void put_calls(const Source *s) {
  const Graph *g = s->f->g;
  int n = 0;
  for (int i = 0; i < g->n_nodes; i++) {
    const GraphNode *node = &g->node[i];
    if (node->kind != GN_CALL) continue;
    sb_printf(s->out, "static const int arg_%d[] = {", n++);
    for (int k = 0; k < node->n_in; k++) sb_printf(s->out, "%d, ", (int)node->in[k]);
    for (int k = 0; k < node->n_out; k++) sb_printf(s->out, "%d, ", (int)node->first + k);
    sb_puts(s->out, "0};\n");
  }
  sb_printf(s->out, "const int n_calls = %d;\nconst Call call[] = {\n", n);
  n = 0;
  for (int i = 0; i < g->n_nodes; i++) {
    const GraphNode *node = &g->node[i];
    if (node->kind != GN_CALL) continue;
    int p = network_program(s->f, node->func);
    if (p < 0) err_raise(arena_err(s->a), NS_ERR_VALUE, "the network has no program %s", node->func);
    sb_printf(s->out, "  {%d, %d, arg_%d}, /* ", p, (int)(node->n_in + node->n_out), n++);
    sb_printf(s->out, "%s */\n", s->f->manifest[p]->entry);
  }
  sb_puts(s->out, "  {0, 0, NULL}};\n");
}

static void put_tensors(const Source *s, const char *what, int n, const int32_t *entry) {
  const Graph *g = s->f->g;
  sb_printf(s->out, "const int n_%ss = %d;\nconst Tensor %s[] = {\n", what, n, what);
  for (int i = 0; i < n; i++) {
    const GraphEntry *en = &g->entry[entry[i]];
    const char *name = network_name(s->f, entry[i]);
    sb_puts(s->out, "  {");
    sb_json(s->out, *name && strcmp(what, "output") != 0 ? name : arena_printf(s->a, "%s_%d", what, i));
    sb_printf(s->out, ", \"%s[", en->dtype);
    for (int d = 0; d < en->rank; d++) sb_printf(s->out, "%s%lld", d ? ", " : "", (long long)en->shape[d]);
    sb_printf(s->out, "]\", %d},\n", (int)entry[i]);
  }
  sb_puts(s->out, "  {NULL, NULL, 0}};\n");
}

void network_source(Arena *a, StrBuf *out, const NetworkFile *f) {
  const Source s = {a, out, f, suffix_of(f->device)};
  put_includes(&s);
  put_values(&s);
  put_programs(&s);
  put_calls(&s);
  put_tensors(&s, "weight", f->n_params, f->entry);
  put_tensors(&s, "input", f->n_inputs, f->input);
  put_tensors(&s, "output", f->g->n_heads, f->g->head);
}
