/* py: CPython and NumPy bindings, one file per folder above, and module.c. No algorithms here.
 * A raised error becomes a Python exception in py_raise.
 */
#ifndef NS_PY_H
#define NS_PY_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* CPython's stable ABI: one binary serves 3.11 and all later versions */
#include <Python.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/machine.h"
#include "te/te.h"
#include "base/limits.h"
#include "schedule/schedule.h"

/* CPython declares its formatters without the attribute that makes compilers check them; declared again, they have it.
 * Formats with its own conversions (%R, %S, %U: objects), which no compiler knows, go through the unchecked names;
 * .ci/check_formats.py sees to it that both use only what CPython knows (no %g). */
PyObject *PyErr_Format(PyObject *type, const char *fmt, ...) NS_PRINTF(2, 3);
PyObject *PyUnicode_FromFormat(const char *fmt, ...) NS_PRINTF(1, 2);
#define py_err_objects ((PyObject *(*)(PyObject *, const char *, ...))PyErr_Format)
#define py_text_objects ((PyObject *(*)(const char *, ...))PyUnicode_FromFormat)

/* Function and flags of a method that takes keywords. */
#define PY_KEYWORDS(f) (PyCFunction)(void (*)(void))(f), METH_VARARGS | METH_KEYWORDS
/* The names for PyArg_ParseTupleAndKeywords: PY_NAMES("dag", "steps") */
#define PY_NAMES(...) ((char *[]){__VA_ARGS__, NULL})
/* What the stable ABI lacks of macros and short names. */
static inline PyObject *py_item(PyObject *seq, Py_ssize_t i) { /* of what PySequence_Fast returned; borrowed */
  return PyList_Check(seq) ? PyList_GetItem(seq, i) : PyTuple_GetItem(seq, i);
}
static inline const char *py_utf8(PyObject *text) { return PyUnicode_AsUTF8AndSize(text, NULL); }
static inline PyObject *py_call1(PyObject *f, PyObject *x) { return PyObject_CallFunctionObjArgs(f, x, NULL); }
#define PY_SET(place, value) /* drops what was there last: its end may run Python */                                       \
  do {                                                                                                                 \
    PyObject *py_old = (PyObject *)(place);                                                                            \
    (place) = (value);                                                                                                 \
    Py_XDECREF(py_old);                                                                                                \
  } while (0)
enum { PY_NAME_ROOM = 80 };
const char *py_type_name(PyTypeObject *t, char *to, size_t n); /* its name without the module, in to */
#define PY_TYPE_NAME(o) py_type_name(Py_TYPE(o), (char[PY_NAME_ROOM]){0}, PY_NAME_ROOM)
/* One statement without the interpreter lock: it touches nothing of Python's and nothing that another thread may change. */
#define PY_UNLOCKED(...)                                                                                                 \
  do {                                                                                                                 \
    Py_BEGIN_ALLOW_THREADS;                                                                                            \
    __VA_ARGS__;                                                                                                       \
    Py_END_ALLOW_THREADS;                                                                                              \
  } while (0)

/* A type of _core: a member for each slot that most types have; what is not there is inherited. */
typedef struct {
  PyTypeObject **type; /* where it is kept; NULL: by the module alone */
  const char *name, *doc;
  size_t size; /* 0: that of the base */
  PyTypeObject **base;
  unsigned flags;      /* besides Py_TPFLAGS_DEFAULT */
  newfunc create;      /* NULL: it cannot be called */
  destructor drop;
  PyMethodDef *methods;
  PyGetSetDef *get;
  const PyType_Slot *more; /* the other slots, ended by {0, NULL} */
} PyClass;
#define PY_CLASS(name_, size_, ...) {.name = "nestsmith._core." name_, .size = size_, __VA_ARGS__}
/* Adds types, in their order, and functions (or NULL) to the module; 0, or -1 with the exception set. */
int py_add(PyObject *m, int n, const PyClass *classes, PyMethodDef *functions);

/* A context with its own error slot: the session's (te expressions of this process) or a DAG's. */
typedef struct { Err err; IrCtx *ctx; } PyCtx;
/* context in which te objects of this interpreter live; NULL with exception set */
PyCtx *py_session(void);
PyObject *py_text(const char *s); /* of a message: it may hold foreign bytes, or be cut inside of a character */
/* Item i of a list or tuple that is being made, taken over; NULL (with the exception set) drops *seq, which ends the loop. */
void py_put(PyObject **seq, Py_ssize_t i, PyObject *item);
void py_put_key(PyObject **dict, const char *key, PyObject *item); /* the same of a dict */
/* Gives back references, or NULL, of objects of any kind. */
void py_drop(int n, void *const *o);
#define PY_DROP(...) py_drop(NS_COUNT(((void *const[]){__VA_ARGS__})), (void *const[]){__VA_ARGS__})
void py_free_object(PyObject *o); /* the end of a dealloc slot */
static inline PyObject *py_none(bool ok) { return ok ? Py_NewRef(Py_None) : NULL; } /* what a method without a result returns */
void *py_calloc(Py_ssize_t n, size_t size); /* PyMem_Free frees it; NULL with MemoryError set */
PyObject *py_raise(const Err *e, ErrCode code); /* sets the exception that belongs to code; returns NULL */
/* Was it made in this process? In a forked child false with TVMError set; what: its name for the message (module.c). */
bool py_here(int made, const char *what);
/* Runs body(arg) protected, without the interpreter lock; a signal whose handler raises (Ctrl-C) ends it at its next
 * err_poll with NS_ERR_INTERRUPT and the handler's exception set, and so does the flag that e has already. e: the one that
 * body polls (py_run.c). */
ErrCode py_run(Err *e, ErrBody body, void *arg);
/* Takes and gives back the interpreter lock, in any thread; of the pair only these are used here, not PyGILState_Ensure. */
typedef struct {
  PyThreadState *made; /* NULL: the thread had its state already */
  PyGILState_STATE had;
} PyEntry;
PyEntry py_enter(void);
void py_leave(PyEntry e);
/* Runs body(arg) protected, without the interpreter lock, in this thread: for work of milliseconds, which no signal ends. */
ErrCode py_free(Err *e, ErrBody body, void *arg);
bool py_free_ok(Err *e, ErrBody body, void *arg); /* as py_free; false with the exception set */
/* Long copies are made without the interpreter lock; what they copy must not change meanwhile. */
void py_memcpy(void *to, const void *from, size_t n);
PyObject *py_bytes(const void *from, size_t n); /* a new bytes object; NULL with MemoryError set */
void py_arena_free(Arena *a);                   /* arena_free; a large one without the lock, so its owner is the last */
/* As py_run; false with the exception set. */
bool py_run_ok(Err *e, ErrBody body, void *arg);
/* The memory of one call with an error slot of its own: `PyScratch s = {0}`, py_arena_free(s.a) in the end. */
typedef struct { Err err; Arena *a; } PyScratch;
void *py_scratch_alloc(PyScratch *s, Py_ssize_t n, size_t size);  /* n zeroed items; NULL with the exception set */
bool py_scratch_run(PyScratch *s, ErrBody body, void *arg);       /* runs body(arg) protected, s->a is there; false with the exception set */
bool py_scratch_free(PyScratch *s, ErrBody body, void *arg);      /* as py_scratch_run, without the interpreter lock */
/* _core.Stop, a flag that calls in other threads poll. (py_run.c) */
PyObject *py_stop_from(PyObject *o); /* a new reference to o, or a new Stop for NULL and None; NULL with TypeError set */
const atomic_int *py_stop_flag(PyObject *stop);
void py_stop_set(PyObject *stop);
/* Clears the exception of an attempt that may fail. A KeyboardInterrupt is no failure: it will be raised again. */
void py_clear(void);
IrCtx *py_context(Err *e);                  /* ir_new with errors going to e; NULL with the exception set (py_expr.c) */
IrCtx *py_clone(const IrCtx *src, Err *e); /* ir_clone with errors going to e; NULL with the exception set (py_expr.c) */
IrCtx *py_candidate(const IrCtx *src, Err *e); /* as py_clone, for one schedule: its memory is bounded (LIMIT_MEMORY) */
/* Runs body(arg) protected, with the interpreter lock: for what is short, and for contexts that others use; false with the
 * exception set (py_expr.c) */
bool py_try(Err *e, ErrBody body, void *arg);
bool py_guard(PyCtx *c, ErrBody body, void *arg);

/* _core.ComputeDAG: owns a context of its own with the DAG in it. Both never change after the constructor, so that they are
 * read and cloned without the interpreter lock. (py_dag.c) */
typedef struct { PyObject_HEAD PyCtx own; TeDag *dag; PyObject *tensors; /* list of the te.Tensor objects it was made from */
                 PyObject *ops; /* list of te.Operation of the session, in stage order */ } PyDag;
extern PyTypeObject *PyDag_Type;
/* te.Tensor / te.Operation / Var objects of the session (py_te.c) */
TensorId py_tensor_id(PyObject *o);          /* 0 with TypeError set if o is no tensor */
ExprId py_expr_id(PyObject *o);              /* accepts expressions, variables, Python numbers; 0 with exception set */
int py_expr_arg(PyObject *o, void *id);      /* the same as a converter for PyArg_ParseTuple's O& */
PyObject *py_expr_new(ExprId e);
PyObject *py_tensor_new(TensorId t);

/* _core.StateBase: a list of steps and what they give. A State is replayed in a clone of its DAG's context (py_schedule.c);
 * a Schedule (py_sched.c) lives in the session's context, where the tensors and axes of te are: own.ctx and dag are NULL, and
 * it is never bounded: lower a state_copy. */
typedef struct { PyObject_HEAD PyDag *dag; PyCtx own; State *state; uint32_t scope; } PyState;
extern PyTypeObject *PyStateBase_Type, *PyState_Type, *PySchedule_Type;
PyCtx *py_state_ctx(PyState *o);
/* Long work on a state is done on a copy in a context of its own, taken under the interpreter lock: what other threads do with
 * the state meanwhile does not matter. py_copy_run runs body(arg) without the lock, by py_free or py_run; false with the
 * exception set. Zeroed before, py_copy_drop in the end, in any case. */
typedef struct { PyCtx own; State *s; } PyCopy;
bool py_copy_take(PyCopy *c, PyState *from);
bool py_copy_dag(PyCopy *c, const PyDag *dag); /* of its context alone, whose numbers are the DAG's */
bool py_copy_run(PyCopy *c, ErrCode (*run)(Err *e, ErrBody body, void *arg), ErrBody body, void *arg);
void py_copy_drop(PyCopy *c);
/* The arguments of a function made from a state: tensors of te, or names. A Schedule's are the tensors themselves, a State's
 * are found by name; none: the tensors of the DAG. */
typedef struct { int n; TensorId *id; const char **name; PyObject *held; } PyArgs;
/* list: None for none; the names stay whatever becomes of it; false with exception set */
bool py_args(PyState *o, PyObject *list, PyArgs *out);
void py_args_free(PyArgs *a);
const TensorId *py_args_in(const State *s, const PyArgs *a, int *n); /* in the state's context; raises */

/* _core.Target (py_target.c). py_target is a converter for PyArg_ParseTuple's O&: a Target, or the name of a kind with its
 * default parameters; 0 with exception set. */
typedef struct { PyObject_HEAD Target t; } PyTarget;
extern PyTypeObject *PyTarget_Type;
int py_target(PyObject *o, void *out);
PyObject *py_hw_tuple(const HwParams *h);    /* in the records' order */
bool py_hw(PyObject *seq, HwParams *out);    /* false with exception set */

/* One init function per file; adds types and functions to the module. 0 or -1 with exception set. */
int py_init_run(PyObject *m);
int py_init_target(PyObject *m);
int py_init_program(PyObject *m);
int py_init_te(PyObject *m);
int py_init_schedule(PyObject *m); /* schedule, and py_init_sched: te schedules, py_init_record */
int py_init_sched(PyObject *m);
int py_init_record(PyObject *m);
int py_init_lower(PyObject *m);
int py_init_codegen(PyObject *m); /* codegen, interp */
int py_init_device(PyObject *m);  /* device, build, measure */
int py_init_search(PyObject *m);  /* search, tune */
int py_init_graph(PyObject *m);
int py_init_model(PyObject *m);
int py_init_template(PyObject *m);
int py_init_itervar(PyObject *m);
int py_init_optimise(PyObject *m);
#endif
