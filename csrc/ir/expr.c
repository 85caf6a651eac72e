/* Types, literals, and the nodes that are built without any folding. */
#include "ir/ctx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ---- */
const DType DT_I32 = {DT_INT, 32, 1}, DT_I64 = {DT_INT, 64, 1}, DT_F32 = {DT_FLOAT, 32, 1}, DT_F16 = {DT_FLOAT, 16, 1},
            DT_F64 = {DT_FLOAT, 64, 1};
const DType DT_BOOL = {DT_UINT, 1, 1}, DT_U8 = {DT_UINT, 8, 1}, DT_I8 = {DT_INT, 8, 1};

DType dtype(DTypeCode code, int bits) { return (DType){(uint8_t)code, (uint8_t)bits, 1}; }
DType dtype_lanes(DType t, int lanes) { return (DType){t.code, t.bits, (uint16_t)lanes}; }
bool dtype_is_bool(DType t) { return t.code == DT_UINT && t.bits == 1; }
int dtype_bytes(DType t) { return (t.bits + 7) / 8 * t.lanes; }

static const char *const CODE_NAME[] = {
    [DT_INT] = "int", [DT_UINT] = "uint", [DT_FLOAT] = "float", [DT_HANDLE] = "handle", [DT_BFLOAT] = "bfloat"};

void dtype_print(StrBuf *b, DType t) {
  if (dtype_is_bool(t))
    sb_puts(b, "bool");
  else if (t.code == DT_HANDLE)
    sb_puts(b, t.bits ? "handle" : "void");
  else
    sb_printf(b, "%s%d", CODE_NAME[t.code], t.bits);
  if (t.lanes > 1) sb_printf(b, "x%d", t.lanes);
}

bool dtype_parse(const char *s, DType *out) {
  static const struct {
    const char *name;
    uint8_t code, bits;
  } PREFIX[] = {/* longest first where one is the head of another */
                {"bool", DT_UINT, 1}, {"handle", DT_HANDLE, 64}, {"void", DT_HANDLE, 0}, {"uint", DT_UINT, 32},
                {"int", DT_INT, 32},  {"bfloat", DT_BFLOAT, 16}, {"float", DT_FLOAT, 32}};
  for (int i = 0; i < NS_COUNT(PREFIX); i++) {
    size_t n = strlen(PREFIX[i].name);
    if (strncmp(s, PREFIX[i].name, n) != 0) continue;
    const char *p = s + n;
    int bits = PREFIX[i].bits, lanes = 1;
    if (*p >= '1' && *p <= '9' && i >= 3) {
      char *end;
      long v = strtol(p, &end, 10);
      bool ok = PREFIX[i].code == DT_FLOAT    ? v == 16 || v == 32 || v == 64
                : PREFIX[i].code == DT_BFLOAT ? v == 16
                                              : v == 1 || v == 4 || v == 8 || v == 16 || v == 32 || v == 64;
      if (!ok) return false;
      bits = (int)v;
      p = end;
    }
    if (*p == 'x' && p[1] >= '1' && p[1] <= '9') {
      char *end;
      long v = strtol(p + 1, &end, 10);
      if (v < 1 || v > 65535) return false;
      lanes = (int)v;
      p = end;
    }
    if (*p) return false;
    *out = (DType){PREFIX[i].code, (uint8_t)bits, (uint16_t)lanes};
    return true;
  }
  return false;
}

/* ---- literals ---- */
static int64_t wrap(DType t, int64_t v) {
  if (t.bits >= 64 || t.bits == 0) return v;
  if (dtype_is_bool(t)) return v != 0;
  uint64_t m = ((uint64_t)1 << t.bits) - 1, u = (uint64_t)v & m;
  if (t.code == DT_INT && (u >> (t.bits - 1)) != 0) u |= ~m;
  return (int64_t)u;
}

ExprId ex_int(IrCtx *c, DType t, int64_t v) {
  if (dtype_is_float(t)) return ex_flt(c, t, (double)v);
  if (t.lanes > 1) return ex_bcast(c, ex_int(c, dtype_lanes(t, 1), v), t.lanes);
  return ctx_leaf(c, IR_INT, t, 0, wrap(t, v));
}

ExprId ex_i32(IrCtx *c, int64_t v) { return ctx_leaf(c, IR_INT, DT_I32, 0, wrap(DT_I32, v)); }

ExprId ex_flt(IrCtx *c, DType t, double v) {
  if (!dtype_is_float(t)) return ex_int(c, t, (int64_t)v);
  if (t.lanes > 1) return ex_bcast(c, ex_flt(c, dtype_lanes(t, 1), v), t.lanes);
  int64_t bits;
  memcpy(&bits, &v, sizeof bits);
  return ctx_node(c, IR_FLT, t, 0, 0, NULL, bits);
}
ExprId ex_zero(IrCtx *c, DType t) { return dtype_is_float(t) ? ex_flt(c, t, 0) : ex_int(c, t, 0); }

bool ex_const_int(const IrCtx *c, ExprId e, int64_t *v) {
  if (!e) return false;
  const ExprNode *p = ir_node(c, e);
  if (p->kind == IR_BCAST) p = ir_node(c, ir_kid(c, e, 0));
  if (p->kind != IR_INT) return false;
  *v = p->u.i;
  return true;
}

bool ex_is_int(const IrCtx *c, ExprId e, int64_t v) {
  int64_t have;
  return ex_const_int(c, e, &have) && have == v;
}

static ExprId limit_value(IrCtx *c, DType t, bool max) {
  if (dtype_is_float(t)) {
    double v = t.code == DT_BFLOAT ? 3.3895313892515355e38
               : t.bits == 64      ? 1.7976931348623157e308
               : t.bits == 32      ? 3.4028234663852886e38
                                   : 65504.0;
    return ex_flt(c, t, max ? v : -v);
  }
  if (t.code == DT_HANDLE) err_raise(c->err, NS_ERR_TYPE, "type handle has no smallest or largest value");
  if (t.code == DT_UINT) return ex_int(c, t, max ? -1 : 0);
  int64_t hi = t.bits >= 64 ? INT64_MAX : ((int64_t)1 << (t.bits - 1)) - 1;
  return ex_int(c, t, max ? hi : -hi - 1);
}

ExprId dtype_min_value(IrCtx *c, DType t) { return limit_value(c, t, false); }
ExprId dtype_max_value(IrCtx *c, DType t) { return limit_value(c, t, true); }

ExprId ex_neutral(IrCtx *c, DType t, bool min) {
  ExprId e = limit_value(c, t, min);
  const ExprNode *p = ir_node(c, e);
  return p->kind == IR_FLT ? ctx_node(c, IR_FLT, t, FLT_INFINITE, 0, NULL, p->u.i) : e;
}

ExprId ex_kept_zero(IrCtx *c, DType t, bool negative) {
  if (!dtype_is_float(t) || t.lanes > 1)
    err_raise(c->err, NS_ERR_TYPE, "only scalar types of floats have a zero with a sign");
  double v = negative ? -0.0 : 0.0;
  int64_t bits;
  memcpy(&bits, &v, sizeof bits);
  return ctx_node(c, IR_FLT, t, FLT_KEPT, 0, NULL, bits);
}

double ir_flt(const IrCtx *c, ExprId e) {
  const ExprNode *p = ir_node(c, e);
  return p->sym == FLT_INFINITE ? copysign(INFINITY, p->u.f) : p->u.f;
}

/* ---- plain nodes ---- */
ExprId ex_raw(IrCtx *c, ExprKind k, DType t, int32_t sym, int n, const ExprId *kids) {
  return ctx_node(c, k, t, sym, n, kids, 0);
}

ExprId ex_var(IrCtx *c, VarId v) {
  if (v <= 0 || v >= c->n.var) err_raise(c->err, NS_ERR_INTERNAL, "no variable with number %d in this context", v);
  return ctx_leaf(c, IR_VAR, c->t.var[v].type, v, 0);
}

ExprId ex_call(IrCtx *c, Intrin in, DType t, int n, const ExprId *args) {
  return ctx_node(c, IR_CALL, t, (int32_t)in, n, args, 0);
}

ExprId ex_let(IrCtx *c, VarId v, ExprId value, ExprId body) {
  ExprId kids[2] = {value, body};
  return ctx_node(c, IR_LET, ir_type(c, body), v, 2, kids, 0);
}

ExprId ex_read(IrCtx *c, TensorId t, int n, const ExprId *idx) {
  const IrTensor *tensor = ir_tensor(c, t);
  if (n != tensor->rank)
    err_raise(c->err, NS_ERR_VALUE, "tensor %s has %d dimensions, got %d indices", tensor->name, tensor->rank, n);
  return ctx_node(c, IR_READ, tensor->type, t, n, idx, 0);
}

ExprId ex_load(IrCtx *c, BufferId b, DType t, int n, const ExprId *idx) {
  return ctx_node(c, IR_LOAD, t, b, n, idx, 0);
}

ExprId ex_ramp(IrCtx *c, ExprId base, ExprId stride, int lanes) {
  if (lanes == 1) return base;
  ExprId kids[2] = {base, stride};
  return ctx_node(c, IR_RAMP, dtype_lanes(ir_type(c, base), lanes), 0, 2, kids, 0);
}

ExprId ex_bcast(IrCtx *c, ExprId v, int lanes) {
  if (lanes == 1) return v;
  return ctx_node(c, IR_BCAST, dtype_lanes(ir_type(c, v), lanes), 0, 1, &v, 0);
}
