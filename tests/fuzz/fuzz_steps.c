/* Fuzz target of replay: a list of steps on a small graph (padded input, matrix product, addition, maximum over rows).
 *
 * Input that begins with '[' is the JSON of a log. Anything else is taken as the steps themselves, a few bytes each
 * with small numbers, so that most steps are legal and long lists are reached. A list that replays also gets bounds,
 * text and Python text, and its JSON must replay to the same program. */
#include "fuzz.h"
#include "schedule/schedule.h"

enum { MAX_STEPS = 40 };
static Err err;
static IrCtx *ctx;
static TeDag *dag;

static ExprId read2(TensorId t, ExprId i, ExprId j) {
  return ex_read(ctx, t, 2, (ExprId[]){i, j});
}
static TeAxis axis(const char *name, int n) {
  return (TeAxis){name, ir_var_new(ctx, name, DT_I32, false), ex_i32(ctx, 0), ex_i32(ctx, n)};
}
static ExprId reduce(ExprKind op, double identity, int n, ExprId (*body)(ExprId, void *), void *arg) {
  VarId x = ir_var_new(ctx, "x", DT_F32, false), y = ir_var_new(ctx, "y", DT_F32, false);
  ExprId result = ex_bin(ctx, op, ex_var(ctx, x), ex_var(ctx, y)), none = ex_flt(ctx, DT_F32, identity);
  ReducerId r = ir_reducer_new(ctx, (IrReducer){.n = 1, .lhs = &x, .rhs = &y, .result = &result, .identity = &none});
  IrAxis k = {ir_var_new(ctx, "k", DT_I32, false), ex_i32(ctx, 0), ex_i32(ctx, n)};
  ExprId src = body(ex_var(ctx, k.var), arg);
  return ex_reduce(
      ctx, (IrReduce){.reducer = r, .n_src = 1, .src = &src, .n_axis = 1, .axis = &k, .cond = ex_int(ctx, DT_BOOL, 1)});
}

typedef struct {
  TensorId a, b;
  ExprId i, j;
} Read;
static ExprId product(ExprId k, void *arg) {
  Read *r = arg;
  return ex_mul(ctx, read2(r->a, r->i, k), read2(r->b, k, r->j));
}
static ExprId row(ExprId k, void *arg) {
  Read *r = arg;
  return read2(r->a, r->i, k);
}

static void build(void *arg) {
  (void)arg;
  TensorId a = te_placeholder(ctx, "A", DT_F32, 2, (ExprId[]){ex_i32(ctx, 14), ex_i32(ctx, 30)})->out[0];
  TensorId b = te_placeholder(ctx, "B", DT_F32, 2, (ExprId[]){ex_i32(ctx, 32), ex_i32(ctx, 24)})->out[0];
  TeAxis p[2] = {axis("i0", 16), axis("i1", 32)};
  ExprId i = ex_var(ctx, p[0].var), j = ex_var(ctx, p[1].var);
  ExprId inside = ex_bin(ctx, IR_AND, ex_bin(ctx, IR_LT, i, ex_i32(ctx, 14)), ex_bin(ctx, IR_LT, j, ex_i32(ctx, 30)));
  ExprId body = ex_select(ctx, inside, read2(a, i, j), ex_flt(ctx, DT_F32, 0));
  TensorId pad = te_compute(ctx, "pad", "", 2, p, 1, &body, 0, NULL)->out[0];
  TeAxis c[2] = {axis("i", 16), axis("j", 24)};
  Read r = {pad, b, ex_var(ctx, c[0].var), ex_var(ctx, c[1].var)};
  body = reduce(IR_ADD, 0, 32, product, &r);
  TensorId mm = te_compute(ctx, "C", "", 2, c, 1, &body, 0, NULL)->out[0];
  TeAxis d[2] = {axis("i", 16), axis("j", 24)};
  i = ex_var(ctx, d[0].var), j = ex_var(ctx, d[1].var);
  body = ex_add(ctx, read2(mm, i, j), ex_flt(ctx, DT_F32, 1));
  TensorId add = te_compute(ctx, "D", "", 2, d, 1, &body, 0, NULL)->out[0];
  TeAxis e = axis("i", 16);
  Read q = {add, 0, ex_var(ctx, e.var), 0};
  body = reduce(IR_MAX, -1e30, 24, row, &q);
  TensorId top = te_compute(ctx, "E", "", 1, &e, 1, &body, 0, NULL)->out[0];
  dag = te_dag(ctx, 3, (TensorId[]){a, b, top});
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  err_init(&err);
  ctx = ir_new(&err);
  fuzz_outcome(&err, err_try(&err, build, NULL));
  return 0;
}

typedef struct {
  const uint8_t *at, *end;
} Bytes;
static int next(Bytes *b) {
  return b->at < b->end ? *b->at++ : 0;
}

static Step decode(Bytes *b) {
  static const char *const TEXT[] = {"auto_unroll_max_step$16", "debug_skip_region", "local", "shared", "global", "x",
                                     "($0 + 3)", "($0 < 5)", "floordiv(12, 5)", "(C[$0, 1] > 0f)", "unroll_explicit$1"};
  Step s = {.kind = (uint8_t)(next(b) % STEP_KINDS)};
  for (const char *p = step_info((StepKind)s.kind)->args; *p; p++) {
    switch (*p) {
    case 's': s.stage = next(b) % 12; break;
    case 'i':
    case 'S': s.iter = next(b) % 12; break;
    case 'a':
    case 'p': s.a = next(b) % 12; break;
    case 'b': s.b = next(b) % 12; break;
    case 'E': s.extent = next(b); break;
    case 'f': s.flag = next(b) & 1; break;
    case 't': s.text = TEXT[next(b) % NS_COUNT(TEXT)]; break;
    default:
      s.n = next(b) % 6;
      s.list = arena_array(ir_arena(ctx), int64_t, s.n);
      for (int i = 0; i < s.n; i++) s.list[i] = (s.kind == STEP_SP) - (*p == 'V') + next(b) % 33;
    }
  }
  return s;
}

typedef struct {
  const uint8_t *data;
  size_t size;
} Job;

static void replay(void *arg) {
  Job *j = arg;
  Arena *a = ir_arena(ctx);
  Step *steps;
  int n = 0;
  if (j->size && j->data[0] == '[') {
    char *text = arena_alloc(a, j->size + 1);
    memcpy(text, j->data, j->size);
    steps = steps_parse(a, text, &n);
  } else {
    Bytes b = {j->data, j->data + j->size};
    steps = arena_array(a, Step, MAX_STEPS);
    while (n < MAX_STEPS && b.at < b.end) steps[n++] = decode(&b);
  }
  if (n > MAX_STEPS) return;
  State *s = state_replay(ctx, dag, n, steps);
  state_text(s, false);
  state_python(s);
  state_infer_bounds(s);
  const char *first = state_text(s, true);
  int n2;
  Step *again = steps_parse(a, steps_text(a, n, steps), &n2);
  State *t = state_replay(ctx, dag, n2, again);
  state_infer_bounds(t);
  FUZZ_CHECK(strcmp(first, state_text(t, true)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Job j = {data, size};
  IrMark mark = ir_mark(ctx);
  fuzz_outcome(&err, err_try(&err, replay, &j));
  ir_release(ctx, mark);
  return 0;
}
