/* What py_expr.c and py_te.c share. */
#ifndef NS_PY_TE_INT_H
#define NS_PY_TE_INT_H
#include "py/py.h"

typedef struct {
  PyObject_HEAD ExprId id;
  uint32_t scope;
} PyExpr; /* id 0: a deferred comparison */
typedef struct {
  PyExpr base;
  int kind;
  PyObject *a, *b;
} PyDeferred; /* a == b, a != b */
typedef struct {
  PyExpr base;
  VarId var;
  ExprId min, extent;
  int kind;
  PyObject *tag;
} PyIterVar;
enum { IV_DATA = 0, IV_THREAD = 1, IV_REDUCE = 2 };
typedef struct {
  PyObject_HEAD TensorId id;
  uint32_t scope;
} PyTensor;
typedef struct {
  PyObject_HEAD TensorId id;
  uint32_t scope;
  PyObject *index;
} PyTensorSlice; /* A[i] of a tensor of higher rank */
typedef struct {
  PyObject_HEAD TeOp *op;
  PyObject *axis, *reduce_axis;
  uint32_t scope;
} PyOperation;

extern PyTypeObject *PyExpr_Type, *PyVar_Type, *PyIterVar_Type, *PyDeferred_Type, *PyIntImm_Type;
extern PyTypeObject *PyTensor_Type, *PyTensorSlice_Type, *PyOperation_Type;

/* Scopes (py_scope.c). Objects that name something in the session call the first two when they are made and when they end. */
void py_scope_born(uint32_t *stamp);
void py_scope_dies(uint32_t stamp);
void py_scope_uses(uint32_t stamp); /* the object may grow in the session: one from before the scope must not lose that */
void py_scope_keep(void);           /* the scope has defined something that no object names */

int py_init_expr(PyObject *m);
int py_init_scope(PyObject *m);
int py_init_dag(PyObject *m);
PyObject *py_iter_new(VarId var, ExprId min, ExprId extent, int kind, PyObject *tag); /* tag may be NULL */
PyObject *py_operation_of(TensorId t);
PyObject *py_dim_new(ExprId e);         /* an extent: int (IntImm) if constant, else an expression */
bool py_dtype(PyObject *o, DType *out); /* "float32"; false with exception set */
PyObject *py_dtype_str(DType t);
/* The operators of expressions; where an operand is a tensor they are those of tensors. */
PyObject *py_expr_add(PyObject *a, PyObject *b), *py_expr_sub(PyObject *a, PyObject *b), *py_expr_mul(PyObject *a, PyObject *b);
PyObject *py_expr_div(PyObject *a, PyObject *b), *py_expr_fdiv(PyObject *a, PyObject *b), *py_expr_fmod(PyObject *a, PyObject *b);
#define PY_ARITHMETIC                                                                                                  \
  {Py_nb_add, py_expr_add}, {Py_nb_subtract, py_expr_sub}, {Py_nb_multiply, py_expr_mul},                              \
      {Py_nb_true_divide, py_expr_div}, {Py_nb_floor_divide, py_expr_fdiv}, {Py_nb_remainder, py_expr_fmod}
PyObject *py_tensor_arith(const char *name, PyObject *a, PyObject *b); /* whole-tensor arithmetic, done by topi */
ExprId *py_expr_list(PyObject *seq, Py_ssize_t *n, const char *what); /* PyMem_Malloc'ed; NULL with exception set */

/* One call into the engine's builders: arguments and result. */
typedef struct {
  ExprKind kind;
  Intrin in;
  DType t;
  int n;
  const ExprId *a;
  int64_t i;
  double f;
  const char *s;
  VarId v;
  ExprId out;
} PyCall;
ExprId py_engine(ErrBody body, PyCall *x);         /* 0 with exception set */
PyObject *py_engine_expr(ErrBody body, PyCall *x); /* the result as an object */
void py_do_bin(void *p);
void py_do_cast(void *p);
void py_do_zero(void *p);
void py_do_math(void *p);
ExprId py_from_int(PyObject *o, DType t, bool typed);
ExprId py_from_float(PyObject *o, DType t, bool typed);
bool py_is_integer(ExprId e);
extern const char *const PY_KIND_NAME[IR_KIND_COUNT];
int py_init_expr_functions(PyObject *m);
int py_init_arith(PyObject *m);
int py_init_stmt(PyObject *m);
#define SES (py_session()->ctx)
#endif
