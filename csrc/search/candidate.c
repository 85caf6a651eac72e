/* What follows from a step list, made once: its state is replayed and bounded in a worker's context, the loops are lowered
 * and checked against the limits of the device, and from the same state come the traits that models learn from and the text
 * that is compiled. All of it is copied out as plain data; the context forgets the candidate.
 */
#include "search/space.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  MakeEnv *m;
  Candidate *c;
  const Step *steps;
  const Traits *known;
  State *s;
  Func f;
} Make;

static const char *kept(Arena *a, const char *text) { return text ? arena_strdup(a, text) : NULL; }

static void replay(void *arg) {
  Make *x = arg;
  Step *own = sp_steps_copy(ir_arena(x->m->ctx), x->c->n_step, x->steps, false);
  x->s = make_replay(x->m, x->c->n_step, own);
  state_infer_bounds(x->s);
  x->c->hash = state_hash(x->s);
}

static void describe(void *arg) {
  Make *x = arg;
  const Target *t = &x->m->task->target;
  Traits made;
  if (!x->known) {
    StateFacts f = state_facts(t, x->s);
    made = traits_of(t, x->s, &f);
  }
  x->c->traits = traits_copy(x->c->keep, x->known ? x->known : &made);
}

static void print(void *arg) {
  Make *x = arg;
  Candidate *c = x->c;
  const SearchTask *t = x->m->task;
  c->text = c->layout ? gen_steps(x->m->ctx, t->dag, &t->target, c->n_step, c->step, c->layout, PROGRAM_NAME, NULL)
                      : gen_loops(x->f, PROGRAM_NAME, 0, NULL);
}

static void lower(void *arg) {
  Make *x = arg;
  Candidate *c = x->c;
  const SearchTask *task = x->m->task;
  x->f = low_loops(x->s, &task->target, task->dag->n_tensors, task->dag->tensor, LOW_CODE);
  GpuCheck g = {.ok = true};
  if (task->gpu) g = low_gpu_check(x->f);
  if (!g.ok) c->why = kept(c->keep, g.why);
  if (c->why || !(c->want & WANT_PROGRAM)) return;
  Err *e = ir_err(x->m->ctx);
  if (err_attempt(e, print, x) != NS_OK) c->text.why = e->msg; /* an answer too: it is the result of measuring it */
  c->printed = arena_new(e);
  GenText t = c->text;
  c->text = (GenText){kept(c->printed, t.source), kept(c->printed, t.manifest), kept(c->printed, t.why)};
}

static void all(void *arg) {
  Make *x = arg;
  SearchTask *t = (SearchTask *)(uintptr_t)x->m->task; /* its counters alone change */
  Err *e = ir_err(x->m->ctx);
  x->c->keep = arena_new(e);
  x->c->step = sp_steps_copy(x->c->keep, x->c->n_step, x->steps, true);
  t->replayed++;
  replay(x);
  if (x->c->want & WANT_TRAITS) {
    t->traits += !x->known;
    err_attempt(e, describe, x);
  }
  if (!(x->c->want & (WANT_CHECK | WANT_PROGRAM))) return;
  t->programs++;
  lower(x);
}

ERR_BODY(keep_why, Make *x, x->c->why = kept(x->c->keep, ir_err(x->m->ctx)->msg))
Candidate *cand_make(MakeEnv *m, int n, const Step *steps, unsigned want, int layout, const Traits *known) {
  Candidate *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  *c = (Candidate){.task = m->task, .n_step = n, .want = want, .layout = layout};
  Make x = {.m = m, .c = c, .steps = steps, .known = known};
  Err *e = ir_err(m->ctx);
  IrMark mark = ir_mark(m->ctx);
  c->code = err_try(e, all, &x);
  if (c->code == NS_OK || (c->keep && err_try(e, keep_why, &x) == NS_OK)) {
    ir_release(m->ctx, mark);
    return c;
  }
  ir_release(m->ctx, mark);
  return cand_free(c), NULL;
}

typedef struct {
  MakeEnv env;
  Err err;
} Alone;
static void open_alone(void *arg) {
  Alone *x = arg;
  x->env.ctx = ir_clone(x->env.task->ctx, &x->err);
  ir_limit(x->env.ctx); /* steps of a log may be anything */
}
Candidate *cand_new(const SearchTask *t, int n, const Step *steps, unsigned want, int layout, const atomic_int *stop) {
  Alone x = {.env = {.task = t}};
  err_init(&x.err);
  x.err.interrupt = stop;
  bool open = err_try(&x.err, open_alone, &x) == NS_OK;
  Candidate *c = open ? cand_make(&x.env, n, steps, want, layout, NULL) : NULL;
  ir_free(x.env.ctx);
  return c;
}

void cand_free(Candidate *c) {
  if (!c) return;
  arena_free(c->printed);
  arena_free(c->keep);
  free(c);
}
