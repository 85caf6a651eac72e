/* Structs that Python fills or reads: a table of named fields each, and two functions over all tables. */
#ifndef NS_PY_FIELDS_H
#define NS_PY_FIELDS_H
#include "program/program.h"
#include "py/py.h"

/* CHARS: an array in the struct; TEXT: a const char * into the Python object; EXPR, TENSOR: an id in the session. The last two
 * are in arrays only. */
typedef enum {
  FIELD_I32, FIELD_I64, FIELD_BOOL, FIELD_DOUBLE, FIELD_CHARS, FIELD_TEXT, FIELD_EXPR, FIELD_TENSOR
} FieldType;
typedef struct {
  const char *name;
  FieldType type;
  size_t offset;
  int64_t lo, hi;           /* of numbers; both 0: what the type holds */
  const char *const *words; /* an I32 given and shown as one of these, NULL-terminated; NULL: a number */
} PyField;
#define FIELD(T, member, type) FIELD_AS(T, #member, member, type)
#define FIELD_AS(T, name, member, type) {name, type, offsetof(T, member), 0, 0, NULL}
#define FIELD_IN(T, member, type, ...) {#member, type, offsetof(T, member), __VA_ARGS__} /* lo, hi, words */
#define FIELDS_END {NULL, FIELD_I32, 0, 0, 0, NULL}

/* Entries of dict replace members of *out; an unknown name, a wrong type or a number out of range: false with the
 * exception set, which begins with `what`. */
bool py_fields_set(const char *what, PyObject *dict, const PyField *f, void *out);
PyObject *py_field_value(const PyField *f, const void *from);
bool py_fields_add(PyObject *dict, const PyField *f, const void *from); /* all of them; false with exception set */
PyObject *py_fields_dict(const PyField *f, const void *from);

/* Which of the words, ended by NULL, was given for `what`; false with ValueError set, which lists them. */
bool py_word(const char *what, const char *given, const char *const *words, int *out);

/* n values of a C array as a list or a tuple; NULL with the exception set. */
PyObject *py_list(FieldType type, Py_ssize_t n, const void *at);
PyObject *py_tuple(FieldType type, Py_ssize_t n, const void *at);
bool py_value(FieldType type, PyObject *item, void *out); /* one of them; false with the exception set */
/* The first n items of a list or tuple as an array, texts borrowed from them; false with the exception set. py_array: all of
 * them, in memory of PyMem with room for one more; NULL with the exception set. */
bool py_take(FieldType type, PyObject *seq, Py_ssize_t n, void *out);
void *py_array(FieldType type, PyObject *seq);
/* [(name, dtype, shape, offset in data, bytes), ...] (py_program.c) */
PyObject *py_weights(int n, const GraphParam *p, const void *data);
#endif
