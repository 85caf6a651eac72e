/* Bindings of the features by which template tuners learn: what the loops of a schedule do, as facts and as numbers. */
#include "model/itervar.h"
#include "py/py_array.h"
#include "py/py_fields.h"
#include "py/py_lower.h"
#include <string.h>

enum { WANT_FACTS, WANT_ITERVAR, WANT_CURVE };
typedef struct {
  PyLowering l;
  int want, samples;
  LoopFacts facts;
  FloatVec vec;
} Job;
static void do_loops(void *arg) {
  Job *j = arg;
  Func f = py_lowering_loops(&j->l, j->l.copy.s, LOW_ANALYSIS);
  low_run(&f, pass_flatten);
  j->facts = itervar_facts(&f);
  if (j->want == WANT_ITERVAR) itervar_vector(ir_arena(f.ctx), &j->facts, &j->vec);
  if (j->want == WANT_CURVE) curve_vector(ir_arena(f.ctx), &j->facts, j->samples, &j->vec);
}

static PyObject *touches(const LoopFact *l) {
  PyObject *d = PyDict_New();
  for (int i = 0; d && i < l->touch.len; i++) {
    const Touch *t = &l->touch.at[i];
    py_put_key(&d, t->name,
               Py_BuildValue("(LLLLLL)", (long long)t->stride, (long long)t->mod, (long long)t->count,
                             (long long)t->reuse, (long long)t->thread_count, (long long)t->thread_reuse));
  }
  return d;
}
static PyObject *facts_list(const LoopFacts *l) {
  PyObject *out = PyList_New(l->n);
  for (int i = 0; out && i < l->n; i++) {
    const LoopFact *x = &l->at[i];
    py_put(&out, i,
           Py_BuildValue("{s:s,s:L,s:L,s:L,s:L,s:s,s:L,s:L,s:L,s:N}", "name", x->name, "length", (long long)x->length,
                         "nest", (long long)x->nest, "top_down", (long long)x->top_down, "bottom_up",
                         (long long)x->bottom_up, "kind", FOR_NAME[x->kind], "add", (long long)x->add, "mul",
                         (long long)x->mul, "div", (long long)x->div, "touch", touches(x)));
  }
  return out;
}
static PyObject *run(PyObject *args, PyObject *kw, bool facts) {
  static const char *const KIND[] = {"itervar", "curve", NULL};
  PyObject *o, *list, *out = NULL;
  const char *kind = "itervar";
  Job j = {.samples = 20};
  if (!PyArg_ParseTupleAndKeywords(args, kw, "OOO&|si", PY_NAMES("schedule", "args", "target", "kind", "samples"), &o,
                                   &list, py_target, &j.l.t, &kind, &j.samples))
    return NULL;
  if (!py_word("kind", kind, KIND, &j.want)) return NULL;
  j.want = facts ? WANT_FACTS : j.want + WANT_ITERVAR;
  if (j.samples < 1 || j.samples > 1000)
    return PyErr_Format(PyExc_ValueError, "samples=%d is not in 1..1000", j.samples);
  if (py_lowering_of(&j.l, o, list) && py_copy_run(&j.l.copy, py_free, do_loops, &j))
    out = facts ? facts_list(&j.facts) : py_array_copy(NPY_FLOAT32, j.vec.at, 1, j.vec.len, 0);
  py_lowering_end(&j.l);
  return out;
}
static PyObject *fn_facts(PyObject *Py_UNUSED(m), PyObject *args, PyObject *kw) { return run(args, kw, true); }
static PyObject *fn_vector(PyObject *Py_UNUSED(m), PyObject *args, PyObject *kw) { return run(args, kw, false); }

static PyMethodDef FUNCTIONS[] = {
    {"loop_facts", PY_KEYWORDS(fn_facts),
     "loop_facts(schedule, args, target): a dict per loop of the program: name, length, nest, top_down, bottom_up, "
     "kind, "
     "add, mul, div, and touch: name of an access -> (stride, mod, count, reuse, thread_count, thread_reuse)."},
    {"loop_vector", PY_KEYWORDS(fn_vector),
     "loop_vector(schedule, args, target, kind='itervar', samples=20): the same as float32 numbers; kind: \"itervar\" "
     "or \"curve\", with `samples` points of each curve."},
    {NULL, NULL, 0, NULL}};

int py_init_itervar(PyObject *m) { return PyModule_AddFunctions(m, FUNCTIONS); }
