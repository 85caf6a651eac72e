/* The inside of a context, private to this folder. */
#ifndef NS_IR_CTX_H
#define NS_IR_CTX_H
#include "ir/ir.h"

enum { IR_MAX_DEPTH = 4000, IR_MAX_WALKS = 24, IR_LEAVES = 256, IR_REDUCES = 1024 };

struct Sum;
typedef struct { /* what the index algebra knows of one expression, valid for one version of one analyser's facts */
  uint32_t version;
  uint32_t have; /* which of the fields below are set */
  ExprId simp;
  const struct Sum *sum;
  Bound bound;
  Residue res;
} ArMemo;

typedef struct { /* one level of walking: a memo indexed by expression */
  uint32_t now;
  int32_t cap;
  uint32_t *stamp;
  ExprId *val;
} Walk;

struct IrCtx {
  IrTables t; /* must be first, see ir_node; entry 0 of each table is unused */
  Err *err;
  Arena *arena;
  uint16_t *depth; /* nesting of each expression */
  uint32_t *hash;  /* of each expression, never 0 */
  IrTensor *tensor;
  IrReducer *reducer;
  IrReduce *reduce;
  IrBuffer *buffer;
  const char **str;
  IrCounts n, cap; /* entries used, entry 0 included, and allocated */
  uint64_t *slot; /* hash table: high half the hash, low half the ExprId; 0: free */
  uint32_t mask;
  ExprId leaf[IR_LEAVES]; /* where a constant or a variable was found last; 0: nowhere yet */
  int32_t last_reduce[IR_REDUCES]; /* by hash; 0: none */
  ArMemo *memo; /* cap_memo entries, made by the first ar_ call */
  int32_t cap_memo;
  uint32_t version; /* last version number given to an analyser */
  uint32_t epoch;   /* counts releases: what an analyser remembers from before one is void */
  bool verify;      /* see ir_set_verify */
  Walk walk[IR_MAX_WALKS];
};

ExprId ctx_node(IrCtx *c, ExprKind k, DType t, int32_t sym, int n, const ExprId *kids, int64_t u);
ExprId ctx_leaf(IrCtx *c, ExprKind k, DType t, int32_t sym, int64_t u); /* the same without kids */
Walk *walk_begin(IrCtx *c); /* walks nest; every begin has its end unless something is raised */
void walk_end(IrCtx *c);
static inline bool walk_seen(const Walk *w, ExprId e) { return e < w->cap && w->stamp[e] == w->now; }
static inline void walk_set(Walk *w, ExprId e, ExprId v) {
  if (e >= w->cap) return; /* made during the walk: not remembered */
  w->stamp[e] = w->now;
  w->val[e] = v;
}
#endif
