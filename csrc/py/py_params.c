/* The parameters of a search: entries of a dictionary replace the defaults. */
#include "py/py_fields.h"
#include "py/py_search.h"

static const char *const MODES[] = {"compatible", "extended", NULL};
#define P(name, member, type)                                                                                          \
  { name, type, offsetof(SearchParams, member), 0, 0, NULL }
static const PyField PARAMS[] = {P("eps_greedy", eps_greedy, FIELD_DOUBLE),
                                 P("sample_init_use_measured_ratio", sample_init_use_measured_ratio, FIELD_DOUBLE),
                                 P("evolutionary_search_mutation_prob", mutation_prob, FIELD_DOUBLE),
                                 P("retry_search_one_round_on_empty", retry_on_empty, FIELD_I32),
                                 P("sample_init_min_population", sample_init_min_population, FIELD_I32),
                                 P("evolutionary_search_population", population, FIELD_I32),
                                 P("evolutionary_search_num_iters", num_iters, FIELD_I32),
                                 P("max_innermost_split_factor", max_innermost_split_factor, FIELD_I32),
                                 P("double_buffer_prob", double_buffer_prob, FIELD_DOUBLE),
                                 P("max_vectorize_size", max_vectorize_size, FIELD_I32),
                                 P("disable_change_compute_location", disable_change_compute_location, FIELD_I32),
                                 P("thread_sums", thread_sums, FIELD_I32),
                                 P("states_per_tiling_in_batch", states_per_tiling_in_batch, FIELD_I32),
                                 P("states_per_tiling", states_per_tiling, FIELD_I32),
                                 P("tensor_cores", tensor_cores, FIELD_I32),
                                 P("cpu_multi_level_tiling_structure", cpu_structure, FIELD_TEXT),
                                 P("gpu_multi_level_tiling_structure", gpu_structure, FIELD_TEXT),
                                 {"search_mode", FIELD_I32, offsetof(SearchParams, extended), 0, 0, MODES},
                                 FIELDS_END};
#undef P

bool py_params(PyObject *d, SearchParams *p) { return py_fields_set("params", d, PARAMS, p); }
