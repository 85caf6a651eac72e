/* Evaluation of expressions, one lane at a time: a vector expression is evaluated once per lane, so ramps and
 * broadcasts are the only places that look at the lane number. READ and REDUCE occur in reference evaluation only
 * (dag.c).
 */
#include <string.h>
#include "interp/run.h"

void set_thread(Run *r, int t) {
  r->t = t;
  r->env = r->env_all + (size_t)t * (size_t)r->max_slots;
}

static int32_t slot_of(Run *r, VarId v) {
  if (!r->slot[v]) {
    if (r->n_slots + 1 >= r->max_slots)
      err_raise(r->err, NS_ERR_INTERNAL, "the interpreter has no place left for variable '%s'",
                ir_var_info(r->c, v)->name);
    r->slot[v] = ++r->n_slots;
  }
  return r->slot[v];
}

void set_var(Run *r, VarId v, Val x) { r->env[slot_of(r, v)] = x; }

static Val variable(Run *r, const ExprNode *n, int lane) {
  int32_t s = r->slot[n->sym];
  if (!s)
    err_raise(r->err, NS_ERR_VALUE, "variable '%s' has no value; the interpreter needs static shapes",
              ir_var_info(r->c, n->sym)->name);
  Val v = r->env[s];
  return n->type.lanes > 1 ? ((const Val *)(intptr_t)v.u.i)[lane] : v;
}

bool ev_cond(Run *r, ExprId e) {
  Val v = ev(r, e, 0);
  if (v.bad) finding(r, FD_UNINIT, 0, "a condition depends on memory that was never written");
  return v.u.i != 0;
}

int64_t ev_int(Run *r, ExprId e, const char *what) {
  Val v = ev(r, e, 0);
  if (v.bad) finding(r, FD_UNINIT, 0, "a %s depends on memory that was never written", what);
  return v.u.i;
}

/* Out of range: the definition has no value, a program goes on with 0. */
static Val index_in(Run *r, const ExprNode *n, int lane) {
  const ExprId *k = r->kid + n->kid0;
  Val v = ev(r, k[0], lane), size = ev(r, k[1], 0);
  if (v.bad || (v.u.i >= 0 && v.u.i < size.u.i)) return v;
  if (r->tensor)
    err_raise(r->err, NS_ERR_VALUE, "index %lld is out of range for an axis of size %lld", (long long)v.u.i,
              (long long)size.u.i);
  finding(r, FD_BOUNDS, -1 - (int32_t)ev(r, k[2], 0).u.i, "index %lld is out of range for an axis of size %lld",
          (long long)v.u.i, (long long)size.u.i);
  return (Val){.u.i = 0};
}

static Val call(Run *r, const ExprNode *n, ExprId e, int lane) {
  const ExprId *k = r->kid + n->kid0;
  Intrin in = (Intrin)n->sym;
  if (in == IN_LIKELY) return ev(r, k[0], lane);
  if (in == IN_IF_THEN_ELSE) {
    Val c = ev(r, k[0], lane);
    if (c.bad) return c;
    return ev(r, k[c.u.i ? 1 : 2], lane);
  }
  if (in == IN_SHFL || in == IN_SHFL_DOWN) {
    int32_t at = mapu_get(&r->shfl, (uint64_t)e, -1);
    if (at < 0)
      err_raise(r->err, NS_ERR_INTERNAL, "a warp shuffle in a place where the interpreter does not expect one");
    return r->shfl_val[(size_t)at * MAX_THREADS + (size_t)r->t];
  }
  if (in == IN_INDEX) return index_in(r, n, lane);
  Val a[4];
  if (n->n < 1 || n->n > 4)
    err_raise(r->err, NS_ERR_VALUE, "the interpreter does not know '%s' with %d arguments", intrin_info(in)->name,
              n->n);
  for (int i = 0; i < n->n; i++) a[i] = ev(r, k[i], lane);
  return val_math(r, in, n->type, n->n, a, r->node[k[n->n - 1]].type);
}

static Val read_tensor(Run *r, const ExprNode *n, int lane) {
  const ExprId *k = r->kid + n->kid0;
  Mem *m = r->tensor ? r->tensor[n->sym] : NULL;
  if (!m) err_raise(r->err, NS_ERR_INTERNAL, "a tensor read outside of reference evaluation");
  int64_t at = 0;
  for (int d = 0; d < n->n; d++) {
    Val v = ev(r, k[d], lane);
    if (v.u.i < 0 || v.u.i >= m->extent[d])
      err_raise(r->err, NS_ERR_VALUE, "'%s' is read at index %lld of dimension %d, its extent is %lld",
                ir_tensor(r->c, n->sym)->name, (long long)v.u.i, d, (long long)m->extent[d]);
    at = at * m->extent[d] + v.u.i;
  }
  return mem_get(m->type, m->data + at * m->size);
}

typedef struct {
  const IrReduce *red;
  const IrReducer *op;
  Val acc[8];
} Reduction;

void combine(Run *r, const IrReducer *op, Val *acc, const Val *src) {
  Val out[8];
  for (int i = 0; i < op->n; i++) {
    set_var(r, op->lhs[i], acc[i]);
    set_var(r, op->rhs[i], src[i]);
  }
  for (int i = 0; i < op->n; i++) out[i] = ev(r, (op->code ? op->code : op->result)[i], 0);
  memcpy(acc, out, sizeof *out * (size_t)op->n);
}

static void reduce_axis(Run *r, Reduction *d, int axis) {
  if (axis < d->red->n_axis) {
    const IrAxis *a = &d->red->axis[axis];
    int64_t lo = ev_int(r, a->min, "minimum"), n = ev_int(r, a->extent, "extent");
    for (int64_t i = 0; i < n; i++) {
      set_var(r, a->var, (Val){.u.i = (int64_t)((uint64_t)lo + (uint64_t)i)});
      reduce_axis(r, d, axis + 1);
    }
    return;
  }
  if ((++r->steps & 1023) == 0) err_poll(r->err);
  if (d->red->cond && !ev(r, d->red->cond, 0).u.i) return;
  Val src[8];
  for (int i = 0; i < d->op->n; i++) src[i] = ev(r, d->red->src[i], 0);
  combine(r, d->op, d->acc, src);
}

static Val reduce(Run *r, ExprId e) {
  Reduction d = {.red = ir_reduce(r->c, e)};
  d.op = ir_reducer(r->c, d.red->reducer);
  if (d.op->n > 8) err_raise(r->err, NS_ERR_VALUE, "a reduction of %d values; at most 8 are supported", d.op->n);
  for (int i = 0; i < d.op->n; i++) d.acc[i] = ev(r, d.red->init ? d.red->init[i] : d.op->identity[i], 0);
  reduce_axis(r, &d, 0);
  return d.acc[d.red->value_index];
}

static Val logic(Run *r, const ExprNode *n, int lane) {
  const ExprId *k = r->kid + n->kid0;
  Val a = ev(r, k[0], lane);
  if (a.bad || (a.u.i != 0) == (n->kind == IR_OR)) return a;
  return ev(r, k[1], lane);
}

/* Neither a whole number, nor a variable of one lane, nor an operator of two numbers. Not inlined: its
 * locals would enlarge the stack frame of every other node. */
__attribute__((noinline)) static Val special(Run *r, const ExprNode *n, ExprId e, int lane) {
  const ExprId *k = r->kid + n->kid0;
  switch ((ExprKind)n->kind) {
  case IR_FLT: return (Val){.u.f = val_round(n->type, ir_flt(r->c, e))};
  case IR_VAR: return variable(r, n, lane);
  case IR_AND:
  case IR_OR: return logic(r, n, lane);
  case IR_NOT: {
    Val a = ev(r, k[0], lane);
    a.u.i = !a.u.i;
    return a;
  }
  case IR_CAST: return val_cast(r, n->type, r->node[k[0]].type, ev(r, k[0], lane));
  case IR_SELECT: {
    Val c = ev(r, k[0], lane);
    if (c.bad) return c;
    if (r->strict) ev(r, k[c.u.i ? 2 : 1], lane);
    return ev(r, k[c.u.i ? 1 : 2], lane);
  }
  case IR_CALL: return call(r, n, e, lane);
  case IR_LET: set_var(r, n->sym, ev(r, k[0], lane)); return ev(r, k[1], lane);
  case IR_LOAD: return mem_load(r, n->sym, n->n, k, lane);
  case IR_RAMP: {
    Val base = ev(r, k[0], 0), stride = ev(r, k[1], 0);
    int64_t at = (int64_t)((uint64_t)base.u.i + (uint64_t)stride.u.i * (uint64_t)lane);
    return (Val){.u.i = val_wrap((DType){n->type.code, n->type.bits, 1}, at), .bad = base.bad || stride.bad};
  }
  case IR_BCAST: return ev(r, k[0], 0);
  case IR_READ: return read_tensor(r, n, lane);
  case IR_REDUCE: return reduce(r, e);
  default: err_raise(r->err, NS_ERR_INTERNAL, "the interpreter met expression kind %d", (int)n->kind);
  }
}

/* Most of what is evaluated is arithmetic of indices: it is done here without calls, but for what does not fit 32 bits. */
static bool of_indices(ExprKind k, int64_t a, int64_t b, int64_t *out) {
  if (ir_is_division(k) && b <= 0) return false;
  switch (k) {
  case IR_ADD: *out = a + b; break;
  case IR_SUB: *out = a - b; break;
  case IR_MUL: *out = a * b; break;
  case IR_DIV: *out = a / b; break;
  case IR_MOD: *out = a % b; break;
  case IR_FDIV: *out = i64_floordiv(a, b); break;
  case IR_FMOD: *out = i64_floormod(a, b); break;
  case IR_LT: *out = a < b; break;
  default: return false;
  }
  return *out == (int32_t)*out;
}

Val ev(Run *r, ExprId e, int lane) {
  const ExprNode *n = r->node + e;
  if (n->kind == IR_INT) return (Val){.u.i = n->u.i};
  if (n->kind == IR_VAR && n->type.lanes == 1 && r->slot[n->sym]) return r->env[r->slot[n->sym]];
  if (n->kind < IR_ADD || n->kind > IR_GE) return special(r, n, e, lane);
  const ExprId *k = r->kid + n->kid0;
  Val a = ev(r, k[0], lane), b = ev(r, k[1], lane), v = {.bad = a.bad || b.bad};
  DType t = r->node[k[0]].type;
  if (t.code == DT_INT && t.bits == 32 && of_indices((ExprKind)n->kind, a.u.i, b.u.i, &v.u.i)) return v;
  return val_bin(r, (ExprKind)n->kind, t, a, b);
}
