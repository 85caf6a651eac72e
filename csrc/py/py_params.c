/* What Python says of a search: the target, as a tuple, and the parameters, as a dictionary whose missing entries keep
 * their defaults. Each reader names the entry that is wrong and leaves the exception set. */
#include "py/py_search.h"
#include <math.h>
#include <string.h>

bool py_target_cpu(Target *t, const char *name) {
  size_t n = strlen(name), ok = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+._");
  if (n >= sizeof t->cpu || ok < n)
    return PyErr_Format(
               PyExc_ValueError,
               "target option -mcpu=%s is no name of a processor: letters, digits and -+._ , at most %d of them", name,
               (int)sizeof t->cpu - 1),
           false;
  memcpy(t->cpu, strcmp(name, "native") == 0 ? "" : name, strcmp(name, "native") == 0 ? 1 : n + 1);
  return true;
}

bool py_target(PyObject *o, Target *t) {
  long long hw[8];
  int kind, sm, fast, mali;
  const char *cpu = "";
  memset(t, 0, sizeof *t);
  if (!PyTuple_Check(o) ||
      !PyArg_ParseTuple(o, "i(LLLLLLLL)iip|s;target: (kind, 8 hardware parameters, sm, fast_math, mali, cpu)", &kind,
                        &hw[0], &hw[1], &hw[2], &hw[3], &hw[4], &hw[5], &hw[6], &hw[7], &sm, &fast, &mali, &cpu)) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_TypeError,
                      "target: expected the tuple (kind, hardware parameters, sm, fast_math, mali, cpu)");
    return false;
  }
  if (kind < TG_CPU || kind > TG_OPENCL)
    return PyErr_Format(PyExc_ValueError, "target kind %d is not known", kind), false;
  for (int i = 0; i < 8; i++)
    if (hw[i] < (i == 0 ? -1 : 0) || hw[i] > INT32_MAX)
      return PyErr_Format(PyExc_ValueError, "hardware parameter %d is %lld, out of range", i, hw[i]), false;
  t->kind = (TargetKind)kind, t->sm = sm, t->fast_math = fast, t->mali = mali;
  t->hw = (HwParams){(int32_t)hw[0], (int32_t)hw[1], (int32_t)hw[2], hw[3],
                     hw[4],          (int32_t)hw[5], (int32_t)hw[6], (int32_t)hw[7]};
  return py_target_cpu(t, cpu);
}

static bool get_number(PyObject *d, const char *key, double *out) {
  PyObject *v = PyDict_GetItemString(d, key);
  if (!v) return true;
  *out = PyFloat_AsDouble(v);
  if (PyErr_Occurred()) return PyErr_Format(PyExc_TypeError, "params[\"%s\"]: expected a number", key), false;
  return true;
}
static bool get_int(PyObject *d, const char *key, int32_t *out) {
  double v = *out;
  if (!get_number(d, key, &v)) return false;
  if (v != floor(v) || fabs(v) > 1e9)
    return PyErr_Format(PyExc_ValueError, "params[\"%s\"] must be an integer", key), false;
  *out = (int32_t)v;
  return true;
}
static bool get_text(PyObject *d, const char *key, const char **out) {
  PyObject *v = PyDict_GetItemString(d, key);
  if (!v) return true;
  if (!PyUnicode_Check(v))
    return PyErr_Format(PyExc_TypeError, "params[\"%s\"]: expected a text, got %s", key, Py_TYPE(v)->tp_name), false;
  *out = PyUnicode_AsUTF8(v);
  return *out != NULL;
}
static bool get_mode(PyObject *d, bool *extended) {
  const char *mode = *extended ? "extended" : "compatible";
  if (!get_text(d, "search_mode", &mode)) return false;
  *extended = strcmp(mode, "extended") == 0;
  if (*extended || strcmp(mode, "compatible") == 0) return true;
  return PyErr_Format(PyExc_ValueError, "params[\"search_mode\"]: '%s' is neither 'extended' nor 'compatible'", mode),
         false;
}
bool py_params(PyObject *d, SearchParams *p) {
  return get_number(d, "eps_greedy", &p->eps_greedy) &&
         get_number(d, "sample_init_use_measured_ratio", &p->sample_init_use_measured_ratio) &&
         get_number(d, "evolutionary_search_mutation_prob", &p->mutation_prob) &&
         get_int(d, "retry_search_one_round_on_empty", &p->retry_on_empty) &&
         get_int(d, "sample_init_min_population", &p->sample_init_min_population) &&
         get_int(d, "evolutionary_search_population", &p->population) &&
         get_int(d, "evolutionary_search_num_iters", &p->num_iters) &&
         get_int(d, "max_innermost_split_factor", &p->max_innermost_split_factor) &&
         get_int(d, "max_vectorize_size", &p->max_vectorize_size) &&
         get_int(d, "disable_change_compute_location", &p->disable_change_compute_location) &&
         get_int(d, "states_per_tiling_in_batch", &p->states_per_tiling_in_batch) &&
         get_int(d, "states_per_tiling", &p->states_per_tiling) &&
         get_text(d, "cpu_multi_level_tiling_structure", &p->cpu_structure) &&
         get_text(d, "gpu_multi_level_tiling_structure", &p->gpu_structure) && get_mode(d, &p->extended);
}
