/* Bindings of lower: texts of lowered programs and the GPU check. Every call works on a copy of the State, without the
 * interpreter lock.
 */
#include <string.h>
#include "py/py_fields.h"
#include "py/py_lower.h"

bool py_lowering_of(PyLowering *l, PyObject *schedule, PyObject *args) {
  if (PyObject_TypeCheck(schedule, PyStateBase_Type))
    return py_args((PyState *)schedule, args, &l->args) && py_copy_take(&l->copy, (PyState *)schedule);
  PyErr_Format(PyExc_TypeError, "expected a Schedule or a State, not %s", PY_TYPE_NAME(schedule));
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
enum { TEXT_PRIMFN, TEXT_LOOPS, TEXT_FEATURES, TEXT_KERNELS, TEXT_PASSES };
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
static char *body_text(const Job *j, const Stmt *s) {
  StrBuf b;
  sb_init(&b, ir_arena(context(j)));
  if (s) st_print(context(j), &b, s, 0);
  return sb_str(&b);
}
/* What the loops become: the program after each pass that changes it. */
static void passes_text(Job *j, Func f) {
  low_check_legal(&f);
  StrBuf b;
  sb_init(&b, ir_arena(context(j)));
  const char *before = body_text(j, f.body), *after;
  int n;
  const LowPass *pass = low_passes(&n);
  for (int i = 0; i < n && f.body; i++, before = after) {
    low_run(&f, pass[i].run);
    after = body_text(j, f.body);
    if (strcmp(before, after)) sb_printf(&b, "== %s\n%s", pass[i].name, after);
  }
  j->text = sb_str(&b);
}
static void do_text(void *arg) {
  Job *j = arg;
  static const LowUse USE[] = {LOW_TEXT, LOW_CODE, LOW_FEATURES, LOW_CODE, LOW_CODE};
  Func f = py_lowering_loops(&j->l, j->l.copy.s, USE[j->what]);
  if (j->what == TEXT_PRIMFN) {
    j->text = low_primfn(f);
    return;
  }
  if (j->what == TEXT_KERNELS) {
    kernels_text(j, f);
    return;
  }
  if (j->what == TEXT_PASSES) {
    passes_text(j, f);
    return;
  }
  low_run(&f, pass_simplify);
  j->text = body_text(j, f.body);
}
ERR_BODY(do_check, Job *j, j->check = low_gpu_check(py_lowering_loops(&j->l, j->l.copy.s, LOW_CODE)))

/* ---- functions ---- */
static PyObject *fn_text(PyObject *Py_UNUSED(m), PyObject *args, PyObject *kw) {
  static const char *const WHAT[] = {"primfn", "loops", "features", "kernels", "passes", NULL};
  PyObject *state, *list = Py_None;
  const char *what;
  Job j = {.l.t = target_default(TG_CPU, 0)};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "Os|O&O", PY_NAMES("state", "what", "target", "args"), &state, &what,
                                   py_target, &j.l.t, &list) ||
      !py_word("what", what, WHAT, &j.what))
    return NULL;
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
static PyMethodDef FUNCS[] = {
    {"lower_text", PY_KEYWORDS(fn_text),
     "lower_text(state, what, target='c', args=None): what is 'primfn' (tutorial dialect), 'loops' or 'features' "
     "(multi-dimensional loop program), or 'kernels' (verified kernel IR), or 'passes' (for every pass that changes "
     "the program a line '== NAME' and the program after it). args: for a State the names of the argument "
     "tensors, in order, default the tensors of the DAG; for a te Schedule the tensors."},
    {"gpu_check", PY_KEYWORDS(fn_check),
     "gpu_check(state, target='cuda', hw=(cores, vector bytes, line bytes, shared, local, threads, vthreads, warp)): "
     "dict with ok, why and the quantities checked."},
    {NULL, NULL, 0, NULL}};

int py_init_lower(PyObject *m) { return PyModule_AddFunctions(m, FUNCS); }
