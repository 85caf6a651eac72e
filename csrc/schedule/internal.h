/* What the files of this folder share: axes and relations of one stage, the attach map, and the three steps that change
 * the DAG. Other folders include schedule.h only.
 */
#ifndef NS_SCHEDULE_INTERNAL_H
#define NS_SCHEDULE_INTERNAL_H
#include "schedule/schedule.h"

/* ---- axis.c: one stage's axes, relations and leaf order ---- */
Stage stage_fresh(IrCtx *c, const TeOp *op, const TeOp *origin); /* root loops of an operation */
Stage *stage_at(State *s, int stage, bool compute);              /* checked access; compute: placeholders are refused */
Axis *leaf_at(State *s, int stage, int iter);                    /* checked access by leaf index */
/* leaf index of an axis; raises if it is no loop (any more) */
int leaf_of(State *s, int stage, int axis);
const char *loop_name(const State *s, const Axis *x);            /* as messages and texts of this state show it */
int axis_new(IrCtx *c, Stage *st, Axis a);                       /* appends; returns its index */
/* Two-way split of the axis at leaf position `pos`; factor or nparts is 0; both 0: a length still open. */
void stage_split2(IrCtx *c, Stage *st, int pos, ExprId factor, ExprId nparts);
void stage_fuse2(IrCtx *c, Stage *st, int pos);                /* leaves pos, pos+1 become one */
void stage_singleton(IrCtx *c, Stage *st);                     /* a leaf of extent 1 at the outermost position */
void stage_permute(IrCtx *c, Stage *st, const int64_t *order); /* leaf p := old leaf order[p] */
char *name_clean(Arena *a, const char *s);                     /* "i.outer@j" -> "i_o_j" */
char *name_joined(Arena *a, const char *const *part);          /* up to a NULL */
#define name_join(a, ...) name_joined(a, (const char *const[]){__VA_ARGS__, NULL})

/* ---- attach map (axis.c) ---- */
void attach_set(State *s, int stage, int target, int iter);
void attach_clear(State *s, int stage);
/* n_old leaves from pos became n_new: what was attached at one of them is at the last of these */
void attach_replace(State *s, int stage, int pos, int n_old, int n_new);
void attach_permute(State *s, int stage, const int64_t *to); /* leaf p moved to to[p] */
void attach_shift(State *s, int from);                     /* stage ids >= from move up by one */

/* ---- steps of our own (own.c), and what they share with TVM's ---- */
void do_spx(State *s, const Step *p);
void do_fux(State *s, const Step *p);
void do_rex(State *s, const Step *p);
void do_anx(State *s, const Step *p);
void do_prx(State *s, const Step *p);
void do_sax(State *s, const Step *p);
void do_va(State *s, const Step *p);
void do_bi(State *s, const Step *p);
void do_sc(State *s, const Step *p);
void do_db(State *s, const Step *p);
void do_pd(State *s, const Step *p);
void do_tz(State *s, const Step *p);
void do_mm(State *s, const Step *p); /* matrix.c */
typedef struct { VarId group, member; int64_t groups, size; bool of_b; } ChannelGroups; /* size: members of each, which b knows, or a */
/* matrix_groups.c: takes an axis that both factors know apart, where one of them knows but its group; in both, and v->grouped */
bool channel_groups(IrCtx *c, const TeAxis *x, MatrixView *v, ChannelGroups *out);
void bind_thread(State *s, Axis *x, Annotation kind, VarId thread); /* thread 0: a new one */
char *expr_store(State *s, int stage, ExprId e, int32_t *n, int64_t **places); /* text and places of an expression's step */
/* Order of all loops in which those of the listed axes take, as listed, the places that they hold now. */
int64_t *loops_in_place(State *s, int stage, int n, const int64_t *axes);

/* ---- dagstep.c: the steps that rewrite the DAG ---- */
void dag_cache_read(State *s, int stage, const char *scope, int n, const int64_t *readers);
void dag_cache_write(State *s, int stage, const char *scope);
void dag_rfactor(State *s, int stage, int axis, int factor_iter);
void dag_transform(State *s, int stage, const char *text);
typedef struct { VEC(TensorId) from, to; } Swap; /* what became of tensors while operations are exchanged */
void swap_outputs(Arena *m, Swap *w, const TeOp *a, const TeOp *b);
TeOp *swap_reads(IrCtx *c, const TeOp *op, const Swap *w); /* op itself if it reads none of them */
/* The stage's operation with other dimensions, read through the map of the text from now on (transform.c). */
TeOp *transformed(State *s, int stage, const char *text, Swap *w);
ScopeKind scope_parse(Err *e, const char *text);

/* ---- bounds.c ---- */
void state_unbound(State *s); /* takes the rebased axes of an earlier bound inference away again; keeps the ranges */
/* Early ranges: extents of all axes of one stage from declared root domains, without tightening (cache_write, rfactor).
 */
void stage_early_extents(IrCtx *c, Stage *st);
ExprId stage_downward(IrCtx *c, const Stage *st, int axis,
                      ExprId *memo);                             /* the other way: from root axes, minima 0 (index.c) */
bool stage_split_exact(IrCtx *c, const Stage *st, const Rel *r); /* the parts' extents multiply to the parent's */

#define S_ERR(s) ir_err((s)->ctx)
#endif
