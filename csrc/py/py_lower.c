/* Bindings of lower: texts of lowered programs, the GPU check, and a benchmark of the path that the search takes for
 * every candidate. Every call works on a copy of the State, without the interpreter lock.
 */
#include <string.h>
#include "interp/interp.h"
#include "py/py_fields.h"
#include "py/py_lower.h"

bool py_lowering_of(PyLowering *l, PyObject *schedule, PyObject *args) {
  if (PyObject_TypeCheck(schedule, PyStateBase_Type))
    return py_args((PyState *)schedule, args, &l->args) && py_copy_take(&l->copy, (PyState *)schedule);
  PyErr_Format(PyExc_TypeError, "expected a Schedule or a State, not %s", Py_TYPE(schedule)->tp_name);
  return false;
}
Func py_lowering_loops(PyLowering *l, State *s, LowUse use) {
  int n;
  if (!s->bounded) state_infer_bounds(s);
  const TensorId *id = py_args_in(s, &l->args, &n);
  return low_loops(s, &l->t, n, id, use);
}
void py_lowering_end(PyLowering *l) {
  py_copy_drop(&l->copy);
  py_args_free(&l->args);
}

typedef struct {
  PyLowering l;
  int what;
  char *text;
  GpuCheck check;
} Job;

/* ---- work in the engine ---- */
enum { TEXT_PRIMFN, TEXT_LOOPS, TEXT_FEATURES, TEXT_KERNELS };
static IrCtx *context(const Job *j) { return j->l.copy.own.ctx; }
static void kernels_text(Job *j, Func f) {
  StrBuf b;
  sb_init(&b, ir_arena(context(j)));
  Program p = low_build(f, "main");
  for (int i = 0; i < p.n_kernels; i++) {
    const Kernel *k = &p.kernel[i];
    sb_printf(&b, "kernel %s grid %lld %lld %lld block %lld %lld %lld shared %lld local %lld\n", k->name,
              (long long)k->grid[0], (long long)k->grid[1], (long long)k->grid[2], (long long)k->block[0],
              (long long)k->block[1], (long long)k->block[2], (long long)k->shared_bytes, (long long)k->local_bytes);
    st_print(context(j), &b, k->body, 1);
  }
  j->text = sb_str(&b);
}
static void do_text(void *arg) {
  Job *j = arg;
  static const LowUse USE[] = {LOW_TEXT, LOW_CODE, LOW_FEATURES, LOW_CODE};
  Func f = py_lowering_loops(&j->l, j->l.copy.s, USE[j->what]);
  if (j->what == TEXT_PRIMFN) {
    j->text = low_primfn(f);
    return;
  }
  if (j->what == TEXT_KERNELS) {
    kernels_text(j, f);
    return;
  }
  pass_simplify(&f);
  StrBuf b;
  sb_init(&b, ir_arena(context(j)));
  st_print(context(j), &b, f.body, 0);
  j->text = sb_str(&b);
}
ERR_BODY(do_check, Job *j, j->check = low_gpu_check(py_lowering_loops(&j->l, j->l.copy.s, LOW_CODE)))

/* ---- functions ---- */
static PyObject *fn_text(PyObject *Py_UNUSED(m), PyObject *args, PyObject *kw) {
  static const char *const WHAT[] = {"primfn", "loops", "features", "kernels"};
  PyObject *state, *list = Py_None;
  const char *what;
  Job j = {.l.t = target_default(TG_CPU, 0)};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "Os|O&O", PY_NAMES("state", "what", "target", "args"), &state, &what,
                                   py_target, &j.l.t, &list))
    return NULL;
  while (j.what < NS_COUNT(WHAT) && strcmp(WHAT[j.what], what)) j.what++;
  if (j.what == NS_COUNT(WHAT))
    return PyErr_Format(PyExc_ValueError,
                        "what='%s' is unknown; use \"primfn\", \"loops\", \"features\" or \"kernels\"", what);
  PyObject *r = py_lowering_of(&j.l, state, list) && py_copy_run(&j.l.copy, py_free, do_text, &j)
                    ? PyUnicode_FromString(j.text)
                    : NULL;
  py_lowering_end(&j.l);
  return r;
}
static PyObject *fn_check(PyObject *Py_UNUSED(m), PyObject *args, PyObject *kw) {
  PyObject *state;
  Job j = {.l.t = target_default(TG_CUDA, 0)};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O!|O&", PY_NAMES("state", "target"), PyState_Type, &state, py_target,
                                   &j.l.t))
    return NULL;
  PyObject *r = NULL;
  if (py_lowering_of(&j.l, state, Py_None) && py_copy_run(&j.l.copy, py_free, do_check, &j)) {
    const GpuCheck *k = &j.check;
    r = Py_BuildValue("{s:O,s:s,s:L,s:L,s:L,s:L,s:L}", "ok", k->ok ? Py_True : Py_False, "why", k->ok ? "" : k->why,
                      "threads", (long long)k->threads, "shared_bytes", (long long)k->shared_bytes, "local_bytes",
                      (long long)k->local_bytes, "vthread", (long long)k->vthread, "vector_bytes",
                      (long long)k->vector_bytes);
  }
  py_lowering_end(&j.l);
  return r;
}
/* ---- every pass against the reference evaluation ---- */
typedef struct {
  Job j;
  const TeDag *dag;
  Py_buffer in[32];
  int n;
  void *ref[32], *got[32];
  VEC(const char *) found;
  int64_t max_steps;
  double tolerance;
} Verify;
static void found(Verify *v, const char *pass, const char *what) {
  vec_push(ir_arena(context(&v->j)), &v->found, arena_printf(ir_arena(context(&v->j)), "%s: %s", pass, what));
}
/* Equal element by element; zeros of either sign are equal, because 0 + x is folded to x. */
static bool equal(const Verify *v, int i) {
  DType t = ir_tensor(context(&v->j), v->dag->tensor[i])->type;
  size_t n = (size_t)v->in[i].len, size = (size_t)dtype_bytes(t);
  if (!memcmp(v->got[i], v->ref[i], n)) return true;
  if (t.code != DT_FLOAT && t.code != DT_BFLOAT) return false;
  const uint8_t *a = v->got[i], *b = v->ref[i];
  for (size_t k = 0; k < n; k++) { /* little endian: the sign is the top bit of an element's last byte */
    if (a[k] == b[k]) continue;
    if (k % size != size - 1 || (a[k] | b[k]) != 0x80 || (a[k] & b[k]) != 0) return false;
    for (size_t j = 1; j < size; j++)
      if (a[k - j] | b[k - j]) return false;
  }
  return true;
}
/* With a tolerance, float32 results may differ by it, relative to the largest magnitude: sums in another order. */
static bool close_enough(const Verify *v, int i) {
  if (equal(v, i)) return true;
  if (v->tolerance <= 0 || !dtype_eq(ir_tensor(context(&v->j), v->dag->tensor[i])->type, DT_F32)) return false;
  const float *a = v->got[i], *b = v->ref[i];
  int64_t n = (int64_t)(v->in[i].len / 4);
  double scale = 0, worst = 0;
  for (int64_t k = 0; k < n; k++) {
    double d = a[k] > b[k] ? (double)a[k] - b[k] : (double)b[k] - a[k], m = b[k] < 0 ? -(double)b[k] : b[k];
    if (!(d <= worst)) worst = d;
    if (m > scale) scale = m;
  }
  return worst <= v->tolerance * scale;
}
static void compare(Verify *v, const char *pass, const Func *f, const Program *p) {
  const TeDag *d = v->dag;
  Arena *a = ir_arena(context(&v->j));
  for (int i = 0; i < v->n; i++) {
    memcpy(v->got[i], v->in[i].buf, (size_t)v->in[i].len);
    if (te_op_of(context(&v->j), d->tensor[i])->kind == TE_COMPUTE) memset(v->got[i], 0x7b, (size_t)v->in[i].len);
  }
  InterpReport r = p ? interp_run_program(p, v->got, v->max_steps) : interp_run(f, v->got, v->max_steps);
  for (int i = 0; i < r.n && i < 4; i++) found(v, pass, r.finding[i]);
  for (int i = 0; i < v->n; i++)
    if (!close_enough(v, i))
      found(v, pass,
            arena_printf(a, "the result in %s differs from the reference",
                         ir_tensor(context(&v->j), d->tensor[i])->name));
}
static int64_t tensor_bytes(IrCtx *c, TensorId id) {
  const IrTensor *t = ir_tensor(c, id);
  int64_t size = dtype_bytes(t->type), e = 0;
  for (int k = 0; k < t->rank; k++)
    err_check(ir_err(c), ex_const_int(c, t->shape[k], &e) && i64_mul(size, e, &size), "tensor %s has no constant shape",
              t->name);
  return size;
}
static void do_verify(void *arg) {
  Verify *v = arg;
  IrCtx *c = context(&v->j);
  if (!v->dag) v->dag = te_dag(c, v->j.l.args.n, v->j.l.args.id);
  const TeDag *d = v->dag;
  for (int i = 0; i < v->n; i++) {
    int64_t size = tensor_bytes(c, d->tensor[i]);
    err_check(ir_err(c), size == v->in[i].len, "array %d has %lld bytes, tensor %s needs %lld", i,
              (long long)v->in[i].len, ir_tensor(c, d->tensor[i])->name, (long long)size);
    v->ref[i] = arena_copy(ir_arena(c), v->in[i].buf, (size_t)v->in[i].len);
    v->got[i] = arena_alloc(ir_arena(c), (size_t)v->in[i].len);
  }
  interp_dag(c, d, v->ref);
  State *const from = v->j.l.copy.s;
  Func f = py_lowering_loops(&v->j.l, state_copy(c, from), LOW_CODE);
  low_check_legal(&f);
  ir_verify(c, f.body, false, false);
  compare(v, "loops", &f, NULL);
  int n;
  const LowPass *pass = low_passes(&n);
  for (int i = 0; i < n; i++) {
    pass[i].run(&f);
    err_check(ir_err(c), f.body != NULL, "nothing is left of the program after pass %s", pass[i].name);
    ir_verify(c, f.body, f.flat, false);
    compare(v, pass[i].name, &f, NULL);
  }
  Program p = low_build(py_lowering_loops(&v->j.l, state_copy(c, from), LOW_CODE), "main");
  compare(v, "program", NULL, &p);
}
static PyObject *fn_verify(PyObject *Py_UNUSED(m), PyObject *args) {
  PyObject *state, *list, *tensors = Py_None;
  Verify v = {.max_steps = 50000000};
  if (!PyArg_ParseTuple(args, "OO&O!|dO", &state, py_target, &v.j.l.t, &PyList_Type, &list, &v.tolerance, &tensors))
    return NULL;
  bool schedule = PyObject_TypeCheck(state, PySchedule_Type);
  bool ok = py_lowering_of(&v.j.l, state, schedule ? tensors : Py_None);
  const PyDag *dag = ok && !schedule ? ((PyState *)state)->dag : NULL;
  if (ok && !schedule && !dag)
    ok = PyErr_Format(PyExc_TypeError, "this state was made from a te schedule; pass the schedule and its tensors") !=
         NULL;
  v.dag = dag ? dag->dag : NULL;
  Py_ssize_t want = !ok ? 0 : schedule ? v.j.l.args.n : v.dag->n_tensors;
  if (ok && (PyList_GET_SIZE(list) != want || want > 32))
    ok = PyErr_Format(PyExc_ValueError, "%zd arrays are needed, one per tensor (at most 32)", want) != NULL;
  for (Py_ssize_t i = 0; ok && i < want; i++) {
    ok = PyObject_GetBuffer(PyList_GET_ITEM(list, i), &v.in[i], PyBUF_C_CONTIGUOUS) == 0;
    if (ok) v.n = (int)i + 1;
  }
  ok = ok && py_copy_run(&v.j.l.copy, py_run, do_verify, &v);
  PyObject *r = ok ? py_list(FIELD_TEXT, v.found.len, v.found.at) : NULL;
  for (int i = 0; i < v.n; i++) PyBuffer_Release(&v.in[i]);
  py_lowering_end(&v.j.l);
  return r;
}
static PyMethodDef FUNCS[] = {
    {"lower_text", PY_KEYWORDS(fn_text),
     "lower_text(state, what, target='c', args=None): what is 'primfn' (tutorial dialect), 'loops' or 'features' "
     "(multi-dimensional loop program), or 'kernels' (verified kernel IR). args: for a State the names of the argument "
     "tensors, in order, default the tensors of the DAG; for a te Schedule the tensors."},
    {"gpu_check", PY_KEYWORDS(fn_check),
     "gpu_check(state, target='cuda', hw=(cores, vector bytes, line bytes, shared, local, threads, vthreads, warp)): "
     "dict with ok, why and the quantities checked."},
    {"lower_verify", fn_verify, METH_VARARGS,
     "lower_verify(state, target, arrays, tolerance=0, tensors=None): runs the program after every pass in the "
     "checking interpreter and compares with the unscheduled evaluation of the DAG, element by element for equality "
     "unless a relative tolerance is given. arrays: one per tensor of the DAG (of a te Schedule: per argument tensor). "
     "Returns the list of findings; empty means correct."},
    {NULL, NULL, 0, NULL}};

int py_init_lower(PyObject *m) { return PyModule_AddFunctions(m, FUNCS); }
