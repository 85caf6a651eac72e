/* The executor: one buffer per storage id (on a CPU one for all that lies between kernels, and their workspaces), one
 * prepared argument list per kernel, and `run`, which calls the kernels in node order without allocating. On CUDA the second
 * run with unchanged pointers is captured into one graph, and later runs are a single launch; binding other memory drops the
 * capture. Its kernels begin while the ones before them end, where that is possible; if such a capture fails, plain launches are
 * captured from then on. Where the network says so, kernels come behind those whose results they need, and run beside others.
 *
 * Memory starts as zeros, and an input without a value stops the run with its name: the result would be a number that
 * means nothing. */
#include "graph/graph.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  DevModule *module;
  void **args, **work; /* work: NULL: the program's own */
  DevReport *report;   /* of these runs; NULL: none, or a CPU's */
  int32_t n_args, node;
} Launch;

struct GraphExec {
  Err *e;
  Arena *arena;
  const Graph *g;
  Device *d;
  void **held; /* what we allocated */
  int n_held;
  int64_t bytes;
  void **own;   /* per entry: our memory for it */
  void **data;  /* per entry: where it is */
  void **bound; /* per entry: the caller's memory that was bound to this very entry */
  bool *needed; /* per entry: read by a kernel, or an output */
  bool *given;  /* per entry: our own memory has got a value */
  bool ready;   /* all inputs were found to have values, and no pointer changed since */
  Launch *step;
  int32_t n_steps;
  DevGraph *captured;
  const DevThreads *threads;
  bool replay, overlap, branches, beside; /* beside: of the capture, kernels run side by side */
  int early;                              /* kernels of the capture that begin while the ones before them end */
  int32_t runs;                           /* since the pointers last changed */
};

typedef struct {
  GraphExec *x;
  GraphFind find;
  void *env;
  void *const *weight; /* NULL: none is shared */
} Init;

static void forget_capture(GraphExec *x) {
  dev_graph_free(x->d, x->captured);
  x->captured = NULL;
  x->early = 0;
  x->beside = false;
}

static void prepare(GraphExec *x) {
  const Graph *g = x->g;
  for (int i = 0; i < x->n_steps; i++) {
    Launch *s = &x->step[i];
    const GraphNode *n = &g->node[s->node];
    int k = 0;
    for (int j = 0; j < n->n_in; j++) s->args[k++] = x->data[n->in[j]];
    for (int j = 0; j < n->n_out; j++) s->args[k++] = x->data[n->first + j];
  }
  forget_capture(x);
  x->runs = 0;
  x->ready = false;
}

/* Does the program take what the node passes? */
static void check_step(const GraphExec *x, const Launch *s, const DevModule *module) {
  const GraphNode *n = &x->g->node[s->node];
  const Manifest *m = dev_manifest(module);
  if (m->n_args != s->n_args)
    err_raise(x->e, NS_ERR_VALUE, "node %s passes %d tensors, %s takes %d", n->name, (int)s->n_args, n->func,
              m->n_args);
  for (int k = 0; k < s->n_args; k++) {
    const GraphEntry *en = &x->g->entry[k < n->n_in ? n->in[k] : n->first + k - n->n_in];
    if (m->arg[k].bytes != en->span)
      err_raise(x->e, NS_ERR_VALUE, "node %s: tensor %d has %lld bytes, %s wants %lld", n->name, k, (long long)en->span,
                n->func, (long long)m->arg[k].bytes);
  }
}

static void init_step(Init *in, Launch *s, int node) {
  GraphExec *x = in->x;
  const GraphNode *n = &x->g->node[node];
  s->node = node;
  s->module = in->find(in->env, n->func);
  if (!s->module)
    err_raise(x->e, NS_ERR_VALUE, "the library has no function %s, which node %s calls", n->func, n->name);
  s->n_args = n->n_in + n->n_out;
  check_step(x, s, s->module);
  s->args = arena_array(x->arena, void *, s->n_args);
}

static void *hold(GraphExec *x, int64_t bytes) {
  size_t size = bytes ? (size_t)bytes : 4;
  void *p = x->held[x->n_held] = dev_alloc(x->d, size);
  x->n_held++;
  x->bytes += bytes;
  dev_fill(x->d, p, 0, size);
  return p;
}

/* Values and workspaces in one room. Returns where it begins. */
static char *init_room(GraphExec *x, int64_t *place) {
  GraphWork *work;
  const Manifest **manifest = arena_array(x->arena, const Manifest *, x->g->n_nodes);
  for (int i = 0; i < x->n_steps; i++) manifest[x->step[i].node] = dev_manifest(x->step[i].module);
  /* Values without elements have a place, too: the room is there, however small. */
  char *begin = hold(x, graph_room(x->arena, x->g, manifest, place, &work));
  for (int i = 0; i < x->n_steps; i++) {
    int count = dev_manifest(x->step[i].module)->n_work;
    x->step[i].work = arena_array(x->arena, void *, count + 1);
    for (int k = 0; k < count; k++) x->step[i].work[k] = begin + work++->at;
  }
  return begin;
}

/* Weights that are shared, and their reshapes, lie where they are given. */
static void init_weights(const Init *in) {
  GraphExec *x = in->x;
  const Graph *g = x->g;
  for (int i = 0; in->weight && i < g->n_nodes; i++) {
    const GraphNode *n = &g->node[i];
    if (n->kind == GN_NULL) x->own[n->first] = in->weight[n->first];
    x->given[n->first] = x->own[n->first] != NULL;
    if (n->kind != GN_NOP || !x->own[n->in[0]]) continue;
    if (g->entry[n->first].bytes > g->entry[n->in[0]].bytes)
      err_raise(x->e, NS_ERR_VALUE, "graph file: node %s makes a value larger than what it reshapes", n->name);
    x->own[n->first] = x->own[n->in[0]];
  }
}

static void init_memory(const Init *in) {
  GraphExec *x = in->x;
  const Graph *g = x->g;
  int64_t *place = arena_array(x->arena, int64_t, g->n_entries);
  void **storage = arena_array(x->arena, void *, g->n_storage);
  x->held = arena_array(x->arena, void *, g->n_storage + 1);
  for (int i = 0; i < g->n_entries; i++) place[i] = -1;
  for (int i = 0; i < g->n_entries; i++)
    err_check(
        x->e, !g->entry[i].at || dev_type(x->d) != DEV_OPENCL,
        "the network writes parts of concatenations where they will lie, but OpenCL cannot offset memory: compile "
        "it for OpenCL");
  char *begin = dev_type(x->d) == DEV_CPU ? init_room(x, place) : NULL;
  init_weights(in);
  for (int i = 0; i < g->n_entries; i++) {
    int k = g->entry[i].storage;
    x->data[i] = x->own[i];
    if (x->own[i]) continue;
    if (place[i] < 0 && !storage[k]) storage[k] = hold(x, g->storage_bytes[k]);
    x->data[i] = x->own[i] = place[i] < 0 ? (char *)storage[k] + g->entry[i].at : begin + place[i];
  }
}

/* Runs of a GPU's module have the module's workspaces, but a report of the network's own: two networks may share the module. */
static void init_report(GraphExec *x, Launch *s) {
  const Manifest *m = dev_manifest(s->module);
  dev_report_free(s->report);
  s->report = NULL;
  s->work = NULL;
  if (m->report < 0) return;
  void *const *work = dev_work(s->module);
  s->work = arena_array(x->arena, void *, m->n_work);
  for (int k = 0; k < m->n_work; k++) s->work[k] = work[k];
  s->report = dev_report_new(s->module);
  s->work[m->report] = dev_report_memory(s->report);
}

static void init_reports(GraphExec *x) {
  for (int i = 0; dev_type(x->d) != DEV_CPU && i < x->n_steps; i++) init_report(x, &x->step[i]);
}

static void init(void *arg) {
  Init *in = arg;
  GraphExec *x = in->x;
  const Graph *g = x->g;
  x->arena = arena_new(x->e);
  x->own = arena_array(x->arena, void *, g->n_entries);
  x->data = arena_array(x->arena, void *, g->n_entries);
  x->bound = arena_array(x->arena, void *, g->n_entries);
  x->needed = arena_array(x->arena, bool, g->n_entries);
  x->given = arena_array(x->arena, bool, g->n_entries);
  x->step = arena_array(x->arena, Launch, g->n_nodes);
  for (int i = 0; i < g->n_nodes; i++)
    if (g->node[i].kind == GN_CALL) init_step(in, &x->step[x->n_steps++], i);
  for (int i = 0; i < g->n_heads; i++) x->needed[g->head[i]] = true;
  for (int i = g->n_nodes - 1; i >= 0;
       i--) { /* users before what they use: a reshape needs its input if it is needed */
    const GraphNode *n = &g->node[i];
    for (int k = 0; k < n->n_in; k++)
      if (n->kind == GN_CALL || x->needed[n->first]) x->needed[n->in[k]] = true;
  }
  init_memory(in);
  init_reports(x);
  prepare(x);
}

static void init_undo(void *arg) { graph_exec_free(((Init *)arg)->x); }

GraphExec *graph_exec_new(Err *e, const Graph *g, Device *d, GraphFind find, void *env, const GraphShared *shared) {
  GraphExec *x = mem_alloc(e, sizeof *x);
  *x = (GraphExec){.e = e, .g = g, .d = d, .replay = true, .overlap = true, .branches = g->branches};
  if (shared) x->threads = shared->threads;
  err_guard(e, init, init_undo, &(Init){x, find, env, shared ? shared->weight : NULL});
  return x;
}

void graph_exec_free(GraphExec *x) {
  if (!x) return;
  forget_capture(x);
  for (int i = 0; i < x->n_steps; i++) dev_report_free(x->step[i].report);
  for (int i = 0; i < x->n_held; i++) dev_free(x->d, x->held[i]);
  arena_free(x->arena);
  free(x);
}

void *graph_exec_data(const GraphExec *x, int entry) { return x->data[entry]; }

/* ---- which inputs have values ---- */
void graph_exec_given(GraphExec *x, int entry) {
  if (x->data[entry] == x->own[entry]) x->given[entry] = true;
}

/* The caller's memory counts as a value where it was bound to the input itself. Where a reshape of the input was given
 * other memory, as an output, the input moved there without its value. */
static bool has_value(const GraphExec *x, int entry) {
  return x->data[entry] == x->own[entry] ? x->given[entry] : x->data[entry] == x->bound[entry];
}

int graph_exec_unset(const GraphExec *x, char *names, size_t size) {
  const Graph *g = x->g;
  size_t at = 0, tail = sizeof " and 2000000000 more";
  int n = 0, shown = 0;
  names[0] = 0;
  for (int i = 0; i < g->n_nodes; i++) {
    const GraphNode *node = &g->node[i];
    if (node->kind != GN_NULL || !x->needed[node->first] || has_value(x, node->first)) continue;
    size_t len = strlen(node->name) + sizeof ", ''";
    if (n++ != shown || at + len + tail > size) continue; /* once one was left out, so are all that follow */
    at += (size_t)snprintf(names + at, size - at, "%s'%s'", shown++ ? ", " : "", node->name);
  }
  if (shown < n && at + tail <= size) snprintf(names + at, size - at, " and %d more", n - shown);
  return n;
}

static void need_values(GraphExec *x) {
  char names[1500];
  int n = x->ready ? 0 : graph_exec_unset(x, names, sizeof names);
  if (n)
    err_raise(x->e, NS_ERR_VALUE,
              "%d of the network's inputs %s never set: %s; set_input(name, array) gives an input its value, "
              "load_params those of a parameter file",
              n, n == 1 ? "was" : "were", names);
  x->ready = true;
}

/* ---- pointers ---- */
/* A reshape and its input, a concatenation and its parts: all have the same memory, and if one is marked, all are. */
static void mark_joint(const GraphNode *n, bool *same) {
  if (n->kind != GN_NOP && n->kind != GN_JOIN) return;
  bool any = same[n->first];
  for (int k = 0; k < n->n_in; k++) any |= same[n->in[k]];
  for (int k = 0; k < n->n_in; k++) same[n->in[k]] |= any;
  same[n->first] |= any;
}

/* Other values that share the entry's storage at other times keep the own memory: only the value itself moves, with the
 * reshapes that are the same bytes, and the parts that it is joined of. */
void graph_exec_bind(GraphExec *x, int entry, void *ptr) {
  const Graph *g = x->g;
  ArenaMark mark = arena_mark(x->arena);
  bool *same = arena_array(x->arena, bool, g->n_entries);
  same[entry] = true;
  for (int pass = 0; pass < 2; pass++) /* forward from the value and, once its source is known, forward from that */
    for (int k = 0; k < g->n_nodes; k++) mark_joint(&g->node[pass ? k : g->n_nodes - 1 - k], same);
  for (int i = 0; i < g->n_entries; i++)
    if (same[i]) x->data[i] = ptr ? (char *)ptr + g->entry[i].at : x->own[i];
  x->bound[entry] = ptr;
  arena_release(x->arena, mark);
  prepare(x);
}

void graph_exec_use(GraphExec *x, const char *func, DevModule *m) {
  int found = 0;
  err_check(x->e, dev_type(x->d) != DEV_CPU, "programs of a network on a CPU cannot be changed: compile it again");
  for (int pass = 0; pass < 2; pass++) /* nothing changes if a node does not fit */
    for (int i = 0; i < x->n_steps; i++) {
      Launch *s = &x->step[i];
      if (strcmp(x->g->node[s->node].func, func) != 0) continue;
      if (pass == 0)
        check_step(x, s, m), found++;
      else
        s->module = m;
    }
  err_check(x->e, found > 0, "no node of the network calls %s", func);
  init_reports(x);
  x->overlap = true; /* what failed may have been the old one's */
  prepare(x);
}

void graph_exec_replay(GraphExec *x, bool on) {
  x->replay = on;
  if (!on) forget_capture(x);
}

static void start(const GraphExec *x, const Launch *s) {
  if (s->work)
    dev_run_in(s->module, s->args, s->work, x->threads);
  else
    dev_run(s->module, s->args);
}

static void launch(void *arg) {
  GraphExec *x = arg;
  for (int i = 0; i < x->n_steps; i++) start(x, &x->step[i]);
}

/* ---- captures ---- */
/* The caller's memory for two values may be the same, or overlap, which their storages do not tell: harmless if nobody writes either. */
static bool distinct(const GraphExec *x) {
  const Graph *g = x->g;
  bool *written = arena_array(x->arena, bool, g->n_storage);
  for (int i = 0; i < x->n_steps; i++) {
    const GraphNode *n = &g->node[x->step[i].node];
    for (int k = 0; k < n->n_out; k++) written[g->entry[n->first + k].storage] = true;
  }
  for (int b = 0; b < g->n_entries; b++)
    for (int e = 0; x->bound[b] && e < g->n_entries; e++) {
      const char *p = x->data[b], *q = x->data[e];
      int32_t one = g->entry[b].storage, two = g->entry[e].storage;
      bool apart = p + g->entry[b].span <= q || q + g->entry[e].span <= p;
      if (one != two && !apart && (written[one] || written[two])) return false;
    }
  return true;
}

/* A report may be written by several at a time. */
static bool has_rooms(const DevModule *m) { return dev_manifest(m)->n_work > (dev_manifest(m)->report >= 0); }

/* Programs with workspaces run one after the other: they have these once. */
static void launch_branches(GraphExec *x, GraphStep *step) {
  int n = x->n_steps, n_ends = 0;
  bool *followed = arena_array(x->arena, bool, n);
  void **node = arena_array(x->arena, void *, n), **behind = arena_array(x->arena, void *, n);
  for (int i = 0; i < n; i++) {
    step[i] = (GraphStep){.node = x->step[i].node, .group = -1};
    for (int k = 0; k <= i && step[i].group < 0; k++)
      if (x->step[k].module == x->step[i].module && has_rooms(x->step[i].module)) step[i].group = k;
  }
  graph_branches(x->arena, x->g, n, step);
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < step[i].n; k++) {
      behind[k] = node[step[i].behind[k]];
      followed[step[i].behind[k]] = true;
    }
    if (!dev_graph_behind(x->d, step[i].n, behind))
      err_raise(x->e, NS_ERR_RUNTIME, "this driver cannot capture kernels side by side");
    start(x, &x->step[i]);
    node[i] = dev_graph_last(x->d);
  }
  for (int i = 0; i < n; i++)
    if (!followed[i]) behind[n_ends++] = node[i];
  x->beside = dev_graph_behind(x->d, n_ends, behind);
}

static void launch_captured(void *arg) {
  GraphExec *x = arg;
  if (x->branches && distinct(x))
    launch_branches(x, arena_array(x->arena, GraphStep, x->n_steps));
  else
    launch(x);
}

static void end_capture(void *arg) {
  GraphExec *x = arg;
  x->captured = dev_graph_end(x->d, &x->early);
}

/* A capture must be ended even when a launch inside it fails. */
static ErrCode try_capture(GraphExec *x, bool overlap, bool branches) {
  x->overlap = overlap, x->branches = branches;
  if (dev_graph_begin(x->d, x->overlap) != 0) {
    x->replay = false;
    return NS_OK;
  }
  ArenaMark mark = arena_mark(x->arena);
  ErrCode c = err_try(x->e, launch_captured, x), end = err_try(x->e, end_capture, x);
  arena_release(x->arena, mark);
  if (c == NS_OK) c = end;
  if (c != NS_OK) forget_capture(x);
  return c;
}

/* What fails is left out from then on: kernels side by side, early launches, both. */
static void capture(GraphExec *x) {
  bool overlap = x->overlap, branches = x->branches;
  ErrCode c = try_capture(x, overlap, branches);
  for (int less = 1; less < 4 && c != NS_OK && !dev_lost(x->d); less++) {
    bool no_branches = less & 1, no_overlap = less & 2;
    if ((no_branches && !branches) || (no_overlap && !overlap)) continue;
    c = try_capture(x, overlap && !no_overlap, branches && !no_branches);
  }
  if (c != NS_OK) err_rethrow(x->e, c);
}

void graph_exec_claim(GraphExec *x) {
  for (int i = 0; i < x->n_steps; i++)
    if (x->step[i].report) dev_report_begin(x->step[i].report);
}

static void run(GraphExec *x) {
  graph_exec_claim(x);
  if (!x->captured && x->replay && x->runs >= 1) capture(x);
  if (x->captured)
    dev_graph_launch(x->d, x->captured);
  else
    launch(x);
  if (x->runs < 2) x->runs++;
}

void graph_exec_run(GraphExec *x) {
  need_values(x);
  run(x);
}

static double time_flushed(GraphExec *x, int number) {
  double sum = 0;
  for (int i = 0; i < number; i++) {
    dev_flush(x->d);
    dev_sync(x->d);
    double t = clock_now();
    run(x);
    dev_sync(x->d);
    sum += clock_now() - t;
    err_poll(x->e);
  }
  return sum / number;
}

double graph_exec_time(GraphExec *x, int number, bool flush) {
  if (flush) return time_flushed(x, number);
  dev_sync(x->d);
  double t = clock_now();
  for (int i = 0; i < number; i++) {
    run(x);
    if (dev_type(x->d) == DEV_CPU) err_poll(x->e);
  }
  dev_sync(x->d);
  return (clock_now() - t) / number;
}

/* ---- the time of each kernel ----
 * Disturbance only adds time, and it comes in jumps: a thread that loses its processor makes one kernel hundreds of times slower.
 * So kernels are timed in many rounds, in turns with whole runs, and of all times of one kernel the lower quartile counts: it is right as
 * long as fewer than three quarters are disturbed. At the end the sum has to be the time of a run; if it is not, more rounds follow. */
enum { TRIES = 4, MOST_ROUNDS = 2000, GPU_ROUNDS = 5 };
static const double LEAST_SECONDS =
                        0.05,          /* of the first rounds: longer than a time slice of a system with other work */
    CPU_FITS = 0.15, A_CLOCK = 0.1e-6, /* seconds of reading the clock */
    GPU_FITS = 1.0; /* there kernels alone are not quite what they are in a run, where they overlap */

typedef struct {
  GraphExec *x;
  int n, room;
  double *each, *whole; /* of every step, `room` times in a row; of whole runs */
} Samples;

static double quartile(const Samples *s, const double *of) {
  ArenaMark mark = arena_mark(s->x->arena);
  double *v = arena_array(s->x->arena, double, s->n);
  memcpy(v, of, sizeof *v * (size_t)s->n);
  f64_median(v, s->n);
  double q = v[s->n / 4];
  arena_release(s->x->arena, mark);
  return q;
}

static Samples samples_new(GraphExec *x, int room) {
  Samples s = {x, 0, room, arena_array(x->arena, double, (size_t)room *(size_t)x->n_steps),
               arena_array(x->arena, double, room)};
  return s;
}

/* The nodes' times, and whether their sum is that of a run. */
static GraphTimes conclude(const Samples *s, double *seconds) {
  const GraphExec *x = s->x;
  GraphTimes t = {quartile(s, s->whole), s->n, false};
  double sum = 0;
  for (int i = 0; i < x->n_steps; i++)
    sum += seconds[x->step[i].node] = quartile(s, s->each + (size_t)i * (size_t)s->room);
  bool cpu = dev_type(x->d) == DEV_CPU;
  double fits = cpu ? CPU_FITS : GPU_FITS, off = A_CLOCK * x->n_steps;
  t.fits = t.run <= sum * (1 + fits) + off && (x->beside || sum <= t.run * (1 + fits) + off);
  return t;
}

static void round_within(Samples *s) {
  GraphExec *x = s->x;
  s->whole[s->n] = graph_exec_time(x, 1, false);
  double last = clock_now();
  for (int i = 0; i < x->n_steps; i++) {
    start(x, &x->step[i]);
    double now = clock_now();
    s->each[(size_t)i * (size_t)s->room + (size_t)s->n] = now - last;
    last = now;
  }
  s->n++;
}

static GraphTimes times_within(GraphExec *x, int number, double *seconds) {
  graph_exec_time(x, 1, false);
  double once = fmax(graph_exec_time(x, 1, false), 1e-7);
  int rounds = (int)fmin(fmax(number, LEAST_SECONDS / 2 / once), MOST_ROUNDS);
  Samples s = samples_new(x, rounds * TRIES);
  GraphTimes t = {0, 0, false};
  for (int k = 0; k < TRIES && !t.fits; k++) {
    for (int i = 0; i < rounds; i++) round_within(&s);
    t = conclude(&s, seconds);
  }
  return t;
}

/* A reshape of a weight is one, too. */
static bool *all_weights(const GraphExec *x, const bool *weight) {
  bool *all = arena_array(x->arena, bool, x->g->n_entries);
  memcpy(all, weight, sizeof *all * (size_t)x->g->n_entries);
  for (int i = 0; i < x->g->n_nodes; i++) {
    const GraphNode *n = &x->g->node[i];
    if (n->kind == GN_NOP) all[n->first] = all[n->in[0]];
  }
  return all;
}

static uint64_t weights_of(const GraphExec *x, const Launch *s, const bool *weight) {
  const GraphNode *n = &x->g->node[s->node];
  uint64_t mask = 0;
  for (int i = 0; i < n->n_in && i < 64; i++) mask |= (uint64_t)weight[n->in[i]] << i;
  return mask;
}

typedef struct {
  Samples *s;
  int number;
  const bool *weight;
  int64_t bytes;
} Alone;
static void round_alone(void *arg) {
  Alone *a = arg;
  Samples *s = a->s;
  GraphExec *x = s->x;
  for (int i = 0, ran; i < x->n_steps; i++) {
    Launch *l = &x->step[i];
    uint64_t cold = a->weight ? weights_of(x, l, a->weight) : 0;
    s->each[(size_t)i * (size_t)s->room + (size_t)s->n] =
        dev_time_cold(l->module, l->args, a->number, cold, a->weight ? a->bytes : 0, true, &ran);
  }
}

static void forget_alone(GraphExec *x) {
  for (int i = 0; i < x->n_steps; i++) dev_forget_timing(x->step[i].module);
  if (!dev_lost(x->d)) dev_forget_cold(x->d);
}

/* Between two reads of a weight a run goes through all other memory of the network: that much lies between two of its places here.
 * Where there is no memory for that, weights are as they are. A run behind each round makes all values what they were. */
static GraphTimes times_alone(GraphExec *x, int number, const bool *weight, double *seconds) {
  Samples s = samples_new(x, GPU_ROUNDS * TRIES);
  Alone a = {&s, number, weight ? all_weights(x, weight) : NULL, x->bytes};
  GraphTimes t = {0, 0, false};
  while (s.n < s.room && !t.fits) {
    ErrCode c = err_try(x->e, round_alone, &a);
    if (c != NS_OK || (s.n + 1) % GPU_ROUNDS == 0) forget_alone(x);
    if (c == NS_ERR_MEMORY && a.weight) {
      a.weight = NULL;
      continue;
    }
    if (c != NS_OK) err_rethrow(x->e, c);
    launch(x);
    s.whole[s.n++] = graph_exec_time(x, number, false);
    if (s.n % GPU_ROUNDS == 0) t = conclude(&s, seconds);
  }
  return t;
}

typedef struct {
  GraphExec *x;
  int number;
  const bool *weight;
  double *seconds;
  GraphTimes out;
} NodeTimes;
static void node_times(void *arg) {
  NodeTimes *t = arg;
  t->out = dev_type(t->x->d) == DEV_CPU ? times_within(t->x, t->number, t->seconds)
                                        : times_alone(t->x, t->number, t->weight, t->seconds);
}

/* On a CPU every kernel is timed where it stands in the run, with the caches as its predecessors leave them. On a GPU,
 * where a clock around one launch would mostly see the launch, each kernel is repeated alone, its weights as cold as in a run. */
GraphTimes graph_exec_node_times(GraphExec *x, int number, const bool *weight, double *seconds) {
  NodeTimes t = {x, number, weight, seconds, {0, 0, false}};
  memset(seconds, 0, sizeof *seconds * (size_t)x->g->n_nodes);
  ArenaMark mark = arena_mark(x->arena);
  ErrCode c = err_try(x->e, node_times, &t);
  arena_release(x->arena, mark);
  if (c != NS_OK) err_rethrow(x->e, c);
  return t.out;
}

bool graph_exec_captured(const GraphExec *x) { return x->captured != NULL; }

int graph_exec_early(const GraphExec *x) { return x->early; }

bool graph_exec_beside(const GraphExec *x) { return x->beside; }

int64_t graph_exec_bytes(const GraphExec *x) { return x->bytes; }
