/* What py_expr.c and py_te.c share. */
#ifndef NS_PY_TE_INT_H
#define NS_PY_TE_INT_H
#include "py/py.h"

typedef struct { PyObject_HEAD ExprId id; } PyExpr;                          /* id 0: a deferred comparison */
typedef struct { PyExpr base; int kind; PyObject *a, *b; } PyDeferred;      /* a == b, a != b */
typedef struct { PyExpr base; VarId var; ExprId min, extent; int kind; PyObject *tag; } PyIterVar;
enum { IV_DATA = 0, IV_THREAD = 1, IV_REDUCE = 2 };
typedef struct { PyObject_HEAD TensorId id; } PyTensor;
typedef struct { PyObject_HEAD TensorId id; PyObject *index; } PyTensorSlice;     /* A[i] of a tensor of higher rank */
typedef struct { PyObject_HEAD TeOp *op; PyObject *axis, *reduce_axis; } PyOperation;

extern PyTypeObject *PyExpr_Type, *PyVar_Type, *PyIterVar_Type, *PyDeferred_Type, *PyIntImm_Type;
extern PyTypeObject *PyTensor_Type, *PyTensorSlice_Type, *PyOperation_Type;

int py_init_expr(PyObject *m);
int py_init_dag(PyObject *m);
PyObject *py_iter_new(VarId var, ExprId min, ExprId extent, int kind, PyObject *tag); /* tag may be NULL */
PyObject *py_dim_new(ExprId e);                       /* an extent: int (IntImm) if constant, else an expression */
bool py_dtype(PyObject *o, DType *out);               /* "float32"; false with exception set */
PyObject *py_dtype_str(DType t);
PyObject *py_tensor_arith(const char *name, PyObject *a, PyObject *b); /* whole-tensor arithmetic, done by topi */
PyObject *py_expr_text(ExprId e);
PyTypeObject *py_type_new(PyObject *m, PyType_Spec *spec, PyTypeObject *base); /* borrowed by the static pointers */
ExprId *py_expr_list(PyObject *seq, Py_ssize_t *n, const char *what); /* PyMem_Malloc'ed; NULL with exception set */
#define SES (py_session()->ctx)
#endif
