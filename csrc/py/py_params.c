/* The parameters of a search: entries of a dictionary replace the defaults. */
#include "py/py_fields.h"
#include "py/py_search.h"

static const char *const MODES[] = {"compatible", "extended", NULL};
static const PyField PARAMS[] = {
    FIELD_AS(SearchParams, "eps_greedy", eps_greedy, FIELD_DOUBLE),
    FIELD_AS(SearchParams, "sample_init_use_measured_ratio", sample_init_use_measured_ratio, FIELD_DOUBLE),
    FIELD_AS(SearchParams, "evolutionary_search_mutation_prob", mutation_prob, FIELD_DOUBLE),
    FIELD_AS(SearchParams, "retry_search_one_round_on_empty", retry_on_empty, FIELD_I32),
    FIELD_AS(SearchParams, "sample_init_min_population", sample_init_min_population, FIELD_I32),
    FIELD_AS(SearchParams, "evolutionary_search_population", population, FIELD_I32),
    FIELD_AS(SearchParams, "evolutionary_search_num_iters", num_iters, FIELD_I32),
    FIELD_AS(SearchParams, "max_innermost_split_factor", max_innermost_split_factor, FIELD_I32),
    FIELD_AS(SearchParams, "double_buffer_prob", double_buffer_prob, FIELD_DOUBLE),
    FIELD_AS(SearchParams, "max_vectorize_size", max_vectorize_size, FIELD_I32),
    FIELD_AS(SearchParams, "disable_change_compute_location", disable_change_compute_location, FIELD_I32),
    FIELD_AS(SearchParams, "descent", descent, FIELD_DOUBLE),
    FIELD_AS(SearchParams, "thread_sums", thread_sums, FIELD_I32),
    FIELD_AS(SearchParams, "states_per_tiling_in_batch", states_per_tiling_in_batch, FIELD_I32),
    FIELD_AS(SearchParams, "states_per_tiling", states_per_tiling, FIELD_I32),
    FIELD_AS(SearchParams, "tensor_cores", tensor_cores, FIELD_I32),
    FIELD_AS(SearchParams, "half_sums", half_sums, FIELD_I32),
    FIELD_AS(SearchParams, "lane_products", lanes, FIELD_I32),
    FIELD_AS(SearchParams, "warpgroups", warpgroups, FIELD_I32),
    FIELD_AS(SearchParams, "wide_stores", wide_stores, FIELD_I32),
    FIELD_AS(SearchParams, "last_blocks", last_blocks, FIELD_I32),
    FIELD_AS(SearchParams, "cpu_multi_level_tiling_structure", cpu_structure, FIELD_TEXT),
    FIELD_AS(SearchParams, "gpu_multi_level_tiling_structure", gpu_structure, FIELD_TEXT),
    {"search_mode", FIELD_I32, offsetof(SearchParams, extended), 0, 0, MODES},
    FIELDS_END};

bool py_params(PyObject *d, SearchParams *p) { return py_fields_set("params", d, PARAMS, p); }
