/* graph: from a network that is compiled to one that runs: the storage plan, the graph file and the
 * executor, which replays a CUDA graph of the whole network. It knows nothing of tuning or of loops. Spec 08 §6, 05 §5.
 */
#ifndef NS_GRAPH_H
#define NS_GRAPH_H
#include "device/device.h"

/* ---- storage plan (plan.c): which values share memory ----
 * A node makes the entries first .. first + n_out - 1 from the entries `in`. Nodes come in execution order. */
typedef enum {
  GN_NULL,
  GN_CALL,
  GN_NOP,
  GN_JOIN
} GraphNodeKind; /* input or parameter; kernel; reshape that shares its input's memory; concatenation into whose memory kernels
                    write its inputs, its parts, which nothing else reads */
typedef struct {
  GraphNodeKind kind;
  const char *name, *func; /* func: NULL for GN_NULL */
  int32_t n_in, *in;       /* entries */
  int32_t first, n_out;
} GraphNode;
typedef struct {
  int32_t n_storage;
  int32_t *id;
  int64_t *bytes;
} GraphPlan; /* id per entry, bytes per storage */
/* branches: so that nodes of which none reads what another makes may run side by side; parts of concatenations wait for each other, and for
 * what is in their memory (branches.c). */
GraphPlan graph_plan(Arena *a, int n_nodes, const GraphNode *nodes, int n_entries, const int64_t *bytes, int n_heads,
                     const int32_t *heads, bool branches);
/* Per entry the concatenation that it is a part of, -1: of none. Raises NS_ERR_VALUE if a part is no kernel's or others read it. */
const int32_t *graph_wholes(Arena *a, int n_nodes, const GraphNode *nodes, int n_entries, int n_heads,
                            const int32_t *heads);

/* ---- graph file (file.c) ---- */
typedef struct {
  int32_t rank;
  int64_t *shape;
  const char *dtype;
  int64_t bytes;
  int32_t storage;
  bool part;        /* of a concatenation */
  int64_t at, span; /* bytes from where the storage begins, and from its first to its last: more than `bytes` if rows lie apart */
} GraphEntry;
typedef struct {
  int32_t n_nodes;
  GraphNode *node;
  int32_t n_entries;
  GraphEntry *entry;
  int32_t n_args, *arg;   /* entries of the inputs and parameters, in order */
  int32_t n_heads, *head; /* entries of the outputs */
  int32_t n_storage;
  int64_t *storage_bytes;
  bool branches; /* kernels may run side by side where the device can */
} Graph;
Graph *graph_parse(Arena *a, const char *json); /* raises NS_ERR_VALUE naming the field; all memory in a */

/* ---- one room for all that lies between kernels (plan.c) ----
 * place: per entry where it begins, -1: it keeps its storage (inputs, parameters, outputs). work: workspaces, each of which
 * lives while its node runs and gets its place, too. Returns the size of the room. */
typedef struct {
  int32_t node;
  int64_t bytes, at;
} GraphWork;
int64_t graph_places(Arena *a, const Graph *g, int64_t *place, int n_work, GraphWork *work);
/* The same with the workspaces of a network on a CPU: manifest: of each node's program, NULL where it calls none. *work: those of the
 * nodes, one behind the other. */
int64_t graph_room(Arena *a, const Graph *g, const Manifest *const *manifest, int64_t *place, GraphWork **work);

/* ---- kernels side by side (branches.c) ----
 * Per step, the call of a node, the earlier ones that it comes directly behind: those that made what it reads, or that touched the
 * storage that it writes; steps of one group, from 0 on, one behind the other. */
typedef struct {
  int32_t node, group; /* group -1: none */
  int32_t n, *behind;  /* steps */
} GraphStep;
void graph_branches(Arena *a, const Graph *g, int n_steps, GraphStep *step);

/* ---- executor (exec.c) ----
 * Opaque; the graph, the device, the modules and what is shared must outlive it. All calls raise on e. Its memory is zero
 * until something is written to it. It does not run before every input that a kernel reads or that is an output has got a
 * value. */
typedef struct GraphExec GraphExec;
typedef DevModule *(*GraphFind)(void *env, const char *func); /* NULL if there is none */
/* What executors share. weight: per entry, memory of an input on the device that holds its value, NULL: its memory is the executor's
 * own. threads: of a CPU; NULL: the device's. */
typedef struct {
  void *const *weight;
  const DevThreads *threads;
} GraphShared;
GraphExec *graph_exec_new(Err *e, const Graph *g, Device *d, GraphFind find, void *env,
                          const GraphShared *shared); /* shared: NULL: nothing; copied */
void graph_exec_free(GraphExec *x);
void *graph_exec_data(const GraphExec *x, int entry); /* device pointer */
void graph_exec_given(GraphExec *x, int entry);       /* a value was written there */
void graph_exec_bind(GraphExec *x, int entry,
                     void *ptr); /* memory of the caller instead of our own; NULL: ours again */
/* How many inputs a run needs that have got no value, and their names ('a', 'b', ... and 7 more) as far as they fit. */
int graph_exec_unset(const GraphExec *x, char *names, size_t size);
/* Nodes that call func run m from now on, a program of the same tensors. Not on a CPU, where workspaces were placed for the old one. */
void graph_exec_use(GraphExec *x, const char *func, DevModule *m);
void graph_exec_replay(GraphExec *x, bool on); /* CUDA graph replay, on by default */
void graph_exec_run(GraphExec *x);             /* asynchronous on GPUs; NS_ERR_VALUE if an input has got no value */
/* This thread is about to read results: an error of the last run ends here, whichever thread began it. */
void graph_exec_claim(GraphExec *x);
/* Mean seconds of `number` runs, device idle before and after; flush: its caches are emptied before each. Inputs without a value are
 * zeros (or what was there). */
double graph_exec_time(GraphExec *x, int number, bool flush);
typedef struct {
  double run; /* seconds of a run, measured meanwhile */
  int32_t rounds;
  bool fits;  /* the sum of the nodes is the time of a run: within 15 % on a CPU, within a factor of 2 on a GPU */
} GraphTimes;
/* Seconds per node; 0 for nodes without kernel. Times that are disturbed do not count. number: runs that are timed at least. weight: per
 * entry, whether it is read once in a run, after all other such; NULL: none is. */
GraphTimes graph_exec_node_times(GraphExec *x, int number, const bool *weight, double *seconds);
bool graph_exec_captured(const GraphExec *x);                          /* runs replay a CUDA graph */
int graph_exec_early(const GraphExec *x); /* how many of its kernels begin while the ones before them end */
bool graph_exec_beside(const GraphExec *x); /* some of them run side by side */
int64_t graph_exec_bytes(const GraphExec *x);                          /* device memory that it holds */

/* ---- an exported network (network.c): all that a deployed program needs ----
 * Three layers: what the file says, which never changes; its programs and weights on a device, which executors of several threads
 * share; an executor. Raises NS_ERR_VALUE if the bytes are damaged or hold none, NS_ERR_RUNTIME if this machine cannot run its
 * programs; what: its name in messages. The bytes must outlive the network. */
typedef struct {
  const Container *c;
  const Graph *g;
  const Manifest **manifest; /* of each program */
  DevType device;            /* where they run */
  int32_t n_inputs, *input; /* entries of the user's inputs: those that have no value in the file */
  int32_t n_params;
  const GraphParam *param;
  int32_t *entry; /* of each parameter */
} NetworkFile;
const NetworkFile *network_read(Arena *a, const void *library, size_t size, const char *what);
int network_entry(const NetworkFile *f, const char *name); /* of an input or parameter; -1: there is none */
const char *network_name(const NetworkFile *f, int entry); /* of an input or parameter */
int network_program(const NetworkFile *f, const char *func); /* its number; -1: there is none */
void network_source(Arena *a, StrBuf *out, const NetworkFile *f); /* the network as tables in C, network.c (source.c) */
int64_t network_exec_bytes(Arena *a, const NetworkFile *f); /* graph_exec_bytes of an executor that shares the weights */

typedef struct NetworkOn NetworkOn;
/* in_place: a CPU reads aligned weights directly from the bytes of the file, which must not change meanwhile. */
NetworkOn *network_place(Err *e, const NetworkFile *f, Device *d, bool in_place);
void network_remove(NetworkOn *on); /* after its executors; NULL is allowed */
/* Another value of a parameter, for executors that are made from now on. */
void network_replace(NetworkOn *on, Err *e, int param, const void *data);
int64_t network_weight_bytes(const NetworkOn *on); /* memory of weights beside the file's */
GraphExec *network_exec_new(Err *e, const NetworkOn *on, const DevThreads *threads);

/* All of it for one owner. The calls raise on e; the device must outlive the network, too. */
typedef struct Network Network;
Network *network_load(Err *e, Device *d, const void *library, size_t size, const char *what);
void network_free(Network *n);
int network_input(const Network *n, const char *name); /* its entry; -1: there is none */
void network_set(Network *n, const char *name, const void *data, size_t bytes);
void network_get(Network *n, int output, void *data, size_t bytes); /* waits */
GraphExec *network_exec(const Network *n);                          /* runs it */
const Graph *network_graph(const Network *n);                       /* shapes and types of inputs and outputs */
#endif
