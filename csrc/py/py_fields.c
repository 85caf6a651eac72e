/* Named fields: how Target, RunPolicy, SearchParams, results and facts of devices cross into Python and back. A field more
 * is one line in its struct and one in its table. */
#include "py/py_fields.h"
#include <limits.h>
#include <math.h>
#include <string.h>

static void *member(void *at, const PyField *f) { return (char *)at + f->offset; }
static const void *member_of(const void *at, const PyField *f) { return (const char *)at + f->offset; }

static bool refuse(const char *what, const PyField *f, PyObject *v, const char *want) {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_OverflowError))
    return false;
  py_err_objects(PyExc_TypeError, "%s[\"%s\"]: expected %s, got %R", what, f->name, want, v);
  return false;
}

static bool set_int(const char *what, const PyField *f, PyObject *v, void *out) {
  double d = PyFloat_AsDouble(v);
  if (d == -1 && PyErr_Occurred()) return refuse(what, f, v, "a number");
  if (d != floor(d))
    return py_err_objects(PyExc_ValueError, "%s[\"%s\"] must be an integer, not %R", what, f->name, v), false;
  bool any = f->lo == 0 && f->hi == 0;
  int64_t lo = !any                   ? f->lo
               : f->type == FIELD_I32 ? INT32_MIN
                                      : INT64_MIN,
          hi = !any                   ? f->hi
               : f->type == FIELD_I32 ? INT32_MAX
                                      : INT64_MAX;
  PyObject *whole = PyNumber_Long(v);
  int over = 0;
  int64_t n = whole ? PyLong_AsLongLongAndOverflow(whole, &over) : -1;
  Py_XDECREF(whole);
  if (PyErr_Occurred()) return false;
  if (over || n < lo || n > hi)
    return py_err_objects(PyExc_ValueError, "%s[\"%s\"] is %R, out of range: it goes from %lld to %lld", what, f->name,
                          v, (long long)lo, (long long)hi),
           false;
  if (f->type == FIELD_I32)
    *(int32_t *)member(out, f) = (int32_t)n;
  else
    *(int64_t *)member(out, f) = n;
  return true;
}

bool py_word(const char *what, const char *given, const char *const *words, int *out) {
  for (int i = 0; words[i]; i++)
    if (strcmp(words[i], given) == 0) return *out = i, true;
  PyObject *known = PyUnicode_FromString(words[0]);
  for (int i = 1; known && words[i]; i++) PY_SET(known, py_text_objects("%U, %s", known, words[i]));
  if (known) py_err_objects(PyExc_ValueError, "%s: '%s' is none of %U", what, given, known);
  Py_XDECREF(known);
  return false;
}
static bool set_word(const char *what, const PyField *f, PyObject *v, void *out) {
  const char *s = PyUnicode_Check(v) ? py_utf8(v) : NULL;
  if (!s) return refuse(what, f, v, "a text");
  char where[128];
  snprintf(where, sizeof where, "%s[\"%s\"]", what, f->name);
  return py_word(where, s, f->words, member(out, f));
}

static bool set_field(const char *what, const PyField *f, PyObject *v, void *out) {
  if (f->words) return set_word(what, f, v, out);
  switch (f->type) {
  case FIELD_I32:
  case FIELD_I64: return set_int(what, f, v, out);
  case FIELD_BOOL: {
    int b = PyObject_IsTrue(v);
    *(bool *)member(out, f) = b > 0;
    return b >= 0;
  }
  case FIELD_DOUBLE: {
    double d = PyFloat_AsDouble(v);
    if (d == -1 && PyErr_Occurred()) return refuse(what, f, v, "a number");
    return *(double *)member(out, f) = d, true;
  }
  case FIELD_CHARS:
  case FIELD_TEXT: {
    Py_ssize_t n;
    const char *s = PyUnicode_Check(v) ? PyUnicode_AsUTF8AndSize(v, &n) : NULL;
    if (!s) return refuse(what, f, v, "a text");
    if (f->type == FIELD_TEXT) return *(const char **)member(out, f) = s, true;
    if ((size_t)n != strlen(s) || n >= f->hi)
      return py_err_objects(PyExc_ValueError, "%s[\"%s\"]: %R is longer than %lld characters or holds a NUL", what,
                            f->name, v, (long long)f->hi - 1),
             false;
    return memcpy(member(out, f), s, (size_t)n + 1), true;
  }
  default: break;
  }
  return false;
}

bool py_fields_set(const char *what, PyObject *dict, const PyField *f, void *out) {
  PyObject *key, *v;
  Py_ssize_t at = 0;
  if (!PyDict_Check(dict))
    return PyErr_Format(PyExc_TypeError, "%s: expected a dict of its fields, got %s", what, PY_TYPE_NAME(dict)), false;
  while (PyDict_Next(dict, &at, &key, &v)) {
    const PyField *x = f;
    const char *name = PyUnicode_Check(key) ? py_utf8(key) : NULL;
    while (name && x->name && strcmp(x->name, name) != 0) x++;
    if (!name && PyErr_ExceptionMatches(PyExc_MemoryError)) return false;
    if (!name || !x->name) return py_err_objects(PyExc_ValueError, "%s has no field %R", what, key), false;
    if (!set_field(what, x, v, out)) return false;
  }
  return true;
}

PyObject *py_field_value(const PyField *f, const void *from) {
  const void *p = member_of(from, f);
  if (f->words) return PyUnicode_FromString(f->words[*(const int32_t *)p]);
  switch (f->type) {
  case FIELD_I32: return PyLong_FromLong(*(const int32_t *)p);
  case FIELD_I64: return PyLong_FromLongLong(*(const int64_t *)p);
  case FIELD_BOOL: return PyBool_FromLong(*(const bool *)p);
  case FIELD_DOUBLE: return PyFloat_FromDouble(*(const double *)p);
  case FIELD_CHARS: return py_text(p);
  case FIELD_TEXT: return Py_BuildValue("z", *(const char *const *)p);
  case FIELD_EXPR: return py_expr_new(*(const ExprId *)p);
  case FIELD_TENSOR: return py_tensor_new(*(const TensorId *)p);
  }
  return NULL;
}

bool py_fields_add(PyObject *dict, const PyField *f, const void *from) {
  for (; f->name; f++) {
    PyObject *v = py_field_value(f, from);
    if (!v || PyDict_SetItemString(dict, f->name, v) != 0) return Py_XDECREF(v), false;
    Py_DECREF(v);
  }
  return true;
}

PyObject *py_fields_dict(const PyField *f, const void *from) {
  PyObject *d = PyDict_New();
  if (d && !py_fields_add(d, f, from)) Py_CLEAR(d);
  return d;
}

/* ---- arrays ---- */

static const size_t SIZE[] = {
    [FIELD_I32] = sizeof(int32_t),    [FIELD_I64] = sizeof(int64_t), [FIELD_BOOL] = sizeof(bool),
    [FIELD_DOUBLE] = sizeof(double),  [FIELD_TEXT] = sizeof(char *), [FIELD_EXPR] = sizeof(ExprId),
    [FIELD_TENSOR] = sizeof(TensorId)};

static PyObject *filled_from(PyObject *seq, FieldType type, Py_ssize_t n, const void *at) {
  PyField f = {.type = type};
  for (Py_ssize_t i = 0; seq && i < n; i++, f.offset += SIZE[type]) py_put(&seq, i, py_field_value(&f, at));
  return seq;
}
PyObject *py_list(FieldType type, Py_ssize_t n, const void *at) { return filled_from(PyList_New(n), type, n, at); }
PyObject *py_tuple(FieldType type, Py_ssize_t n, const void *at) { return filled_from(PyTuple_New(n), type, n, at); }

bool py_value(FieldType type, PyObject *item, void *out) {
  switch (type) {
  case FIELD_DOUBLE: *(double *)out = PyFloat_AsDouble(item); break;
  case FIELD_TEXT: *(const char **)out = py_utf8(item); break;
  case FIELD_BOOL: *(bool *)out = PyObject_IsTrue(item) > 0; break;
  case FIELD_EXPR: *(ExprId *)out = py_expr_id(item); break;
  case FIELD_TENSOR: *(TensorId *)out = py_tensor_id(item); break;
  default: {
    int64_t v = PyLong_AsLongLong(item);
    if (type == FIELD_I64)
      *(int64_t *)out = v;
    else if (v >= INT32_MIN && v <= INT32_MAX)
      *(int32_t *)out = (int32_t)v;
    else
      PyErr_Format(PyExc_ValueError, "%lld does not fit 32 bits", (long long)v);
  }
  }
  return !PyErr_Occurred();
}
bool py_take(FieldType type, PyObject *seq, Py_ssize_t n, void *out) {
  for (Py_ssize_t i = 0; i < n && i < PySequence_Size(seq); i++) /* converting an item may change the list */
    if (!py_value(type, py_item(seq, i), (char *)out + (size_t)i * SIZE[type])) return false;
  return true;
}
void *py_array(FieldType type, PyObject *seq) {
  Py_ssize_t n = PySequence_Size(seq);
  void *out = py_calloc(n + 1, SIZE[type]);
  if (out && !py_take(type, seq, n, out)) PyMem_Free(out), out = NULL;
  return out;
}
