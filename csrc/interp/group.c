/* Products of warpgroups (sm_90a): four warps multiply tiles that lie in shared memory, and go on before the products are done.
 *
 * Operands are found as the unit finds them: by the address of the tile's beginning, and by exchanging chunks of 16 bytes by
 * XOR with the bits from the seventh on of the very address. A product reads them at any time between its begin and the wait
 * for it: they are read at both moments, and what has changed in between is a finding, as any write of others without a barrier
 * is a race. Its sums count as never written in between, and as written by others if the thread stores to them. What threads
 * store is seen by the unit behind IN_GROUP_SEES of the thread that stores.
 */
#include <string.h>
#include "interp/run.h"

enum { TEAM = GPU_WARPGROUP, ROWS = 64, COLS = 256, DEPTH = 16, TEAMS = MAX_THREADS / TEAM };

typedef struct {
  BufferId buf;
  int rows, depth;
  int64_t at[COLS * DEPTH];
  Val v[COLS * DEPTH];
  bool registers;
  Spot spot[TEAM]; /* where they are */
} Factor;

typedef struct Product {
  struct Product *next; /* a later one, or of those that are free */
  int64_t group;
  int n;
  Spot c[TEAM];
  Factor a, b;
  Val sum[ROWS * COLS];
} Product;

typedef struct {
  Product *first; /* under way, in their order */
  int64_t groups; /* committed so far */
  bool begun;
} Team;
struct Groups {
  Team team[TEAMS];
  Product *free;
  int32_t seen[MAX_THREADS]; /* epoch in which the thread last said that its stores are to be seen; 0: never */
  bool more[MAX_THREADS];    /* it has stored since, in that epoch */
};

static struct Groups *groups(Run *r) {
  if (!r->groups) r->groups = arena_new_of(r->keep, struct Groups);
  return r->groups;
}

bool is_group_op(Intrin in) { return in >= IN_GROUP_MMA && in <= IN_GROUP_WAIT; }

void group_sees(Run *r) {
  groups(r)->seen[r->t] = r->epoch;
  groups(r)->more[r->t] = false;
}
void group_stored(Run *r) {
  struct Groups *g = r->groups;
  if (g->seen[r->t] == r->epoch) g->more[r->t] = true;
}

static void drop(struct Groups *g, Product **at) {
  Product *p = *at;
  *at = p->next;
  p->next = g->free;
  g->free = p;
}

void end_groups(Run *r) {
  struct Groups *g = r->groups;
  for (int i = 0; g && i < TEAMS; i++) {
    Team *t = &g->team[i];
    while (t->first) drop(g, &t->first);
    t->groups = 0, t->begun = false;
  }
  if (g) memset(g->seen, 0, sizeof g->seen);
}

/* ---- operands ---- */

/* The byte at which element (row, k) of a tile that begins at byte `first` lies. */
static int64_t place(int64_t first, int64_t line, int64_t panel, int size, int64_t row, int64_t k) {
  int64_t down = panel ? k : row, along = (panel ? row : k) * size;
  int64_t at = first + down * line + (panel ? along / line * panel + along % line : along);
  return at ^ (at >> 7 & (line / 16 - 1)) << 4;
}

static Val element(Run *r, Mem *m, int64_t at) {
  const Shadow *s = &m->shadow[at];
  const struct Groups *g = r->groups;
  int writer = s->writer ? (s->writer - 1) % r->threads : -1;
  if (writer >= 0 && s->init && g->seen[writer] < s->write_epoch + g->more[writer])
    finding(r, FD_RACE, m->id,
            "a product of warpgroups may not see what was stored in '%s' (no fence of the thread behind it)",
            ir_buffer(r->c, m->id)->name);
  return mem_load_at(r, m, at);
}

/* Register q of a fragment that thread l has, of one of 16 rows for each warp. */
static int register_place(int l, int q) { return (l / 32 * 16 + l % 32 / 4 + q % 2 * 8) * DEPTH + l % 4 + q / 2 * 4; }
static Val register_value(Run *r, Spot s, int q) {
  Val v = operand_take(r, s, q);
  uint32_t bits = (uint32_t)v.u.i;
  float f;
  memcpy(&f, &bits, sizeof f);
  v.u.f = f;
  return v;
}
static void read_registers(Run *r, ExprId load, int first, Factor *f) {
  f->buf = r->node[load].sym, f->registers = true;
  for (int l = 0; l < TEAM; l++) {
    set_thread(r, first + l);
    f->spot[l] = operand_spot(r, load, false);
    for (int q = 0; q < 4; q++) f->v[register_place(l, q)] = register_value(r, f->spot[l], q);
  }
}
static bool registers_changed(Run *r, const Factor *f, int first) {
  for (int l = 0; l < TEAM; l++)
    for (int q = 0; q < 4; q++) {
      set_thread(r, first + l);
      Val now = register_value(r, f->spot[l], q), then = f->v[register_place(l, q)];
      if (!then.bad && (now.bad || memcmp(&now.u, &then.u, sizeof now.u) != 0)) return true;
    }
  return false;
}

static void read_factor(Run *r, const ExprId *k, int which, Factor *f) {
  Spot p = operand_spot(r, k[3 + which], false);
  f->buf = r->node[k[3 + which]].sym;
  const IrBuffer *b = ir_buffer(r->c, f->buf);
  int64_t line = ev_int(r, k[5 + 2 * which], "line of a tile"), panel = ev_int(r, k[6 + 2 * which], "panel of a tile");
  if ((line != 32 && line != 64 && line != 128) || panel % (8 * line))
    err_raise(r->err, NS_ERR_VALUE, "a tile in lines of %lld bytes, %lld from one panel to the next", (long long)line,
              (long long)panel);
  int size = p.mem->size;
  int64_t first = p.at * size;
  if (b->scope != SC_SHARED || b->align % (8 * line) || first % 16 || first % (8 * line) >= line)
    finding(r, FD_BOUNDS, f->buf, "a tile of a product in '%s' begins where no tile can", b->name);
  for (int row = 0; row < f->rows; row++)
    for (int i = 0; i < f->depth; i++) {
      int64_t *at = &f->at[row * DEPTH + i];
      *at = place(first, line, panel, size, row, i) / size;
      Val *v = &f->v[row * DEPTH + i];
      if (p.at >= 0 && *at < p.mem->n) {
        *v = element(r, p.mem, *at);
        continue;
      }
      finding(r, FD_BOUNDS, f->buf, "out of bounds: a tile of a product ends behind '%s'", b->name);
      *v = (Val){.bad = true};
    }
}

/* Nothing of it has changed up to the end of the product. */
static void changed(Run *r, const Factor *f) {
  finding(r, FD_RACE, f->buf, "a race: '%s' changes before the products that read it have been waited for",
          ir_buffer(r->c, f->buf)->name);
}
static void still_there(Run *r, const Factor *f, int first) {
  if (f->registers) {
    if (registers_changed(r, f, first)) changed(r, f);
    return;
  }
  set_thread(r, first);
  Mem *m = mem_of(r, f->buf);
  for (int i = 0; i < f->rows * DEPTH; i++) {
    if (i % DEPTH >= f->depth || f->v[i].bad) continue;
    Val now = mem_load_at(r, m, f->at[i]);
    if (!now.bad && memcmp(&now.u, &f->v[i].u, sizeof now.u) == 0) continue;
    changed(r, f);
    return;
  }
}

/* ---- products ---- */

/* Which sum of the tile register q of thread l is. */
static int sum_of(int l, int q) {
  return (l / 32 * 16 + l % 32 / 4 + q / 2 % 2 * 8) * COLS + q / 4 * 8 + l % 4 * 2 + q % 2;
}

static void check_same(Run *r, const ExprId *k, int first, bool registers) {
  for (int i = registers ? 4 : 3; i < 5; i++) {
    set_thread(r, first);
    int64_t at = operand_spot(r, k[i], false).at;
    for (int l = 1; l < TEAM; l++) {
      set_thread(r, first + l);
      if (operand_spot(r, k[i], false).at == at) continue;
      finding(r, FD_BARRIER, r->node[k[i]].sym, "the threads of a warpgroup disagree about a tile in '%s'",
              ir_buffer(r->c, r->node[k[i]].sym)->name);
      return;
    }
  }
}

/* The sums that the product adds to: those of the last one under way, or what is in the registers. */
static void take_sums(Run *r, const Team *t, Product *p, int first) {
  const Product *before = NULL;
  for (const Product *q = t->first; q; q = q->next)
    if (q->c[0].mem == p->c[0].mem && q->c[0].at == p->c[0].at && q->n == p->n) before = q;
  if (before) {
    memcpy(p->sum, before->sum, sizeof p->sum);
    return;
  }
  for (int l = 0; l < TEAM; l++) {
    set_thread(r, first + l);
    for (int q = 0; q < p->n / 2; q++) p->sum[sum_of(l, q)] = operand_take(r, p->c[l], q);
  }
}

static void multiply(const Factor *a, const Factor *b, Product *p, bool tf32) {
  for (int row = 0; row < ROWS; row++)
    for (int col = 0; col < p->n; col++) {
      double sum = 0;
      bool bad = false;
      const Val *x = a->v + row * DEPTH, *y = b->v + col * DEPTH;
      for (int i = 0; i < a->depth; i++) {
        sum += tf32 ? num_tf32(x[i].u.f, false) * num_tf32(y[i].u.f, false) : x[i].u.f * y[i].u.f;
        bad |= x[i].bad || y[i].bad;
      }
      Val *c = &p->sum[row * COLS + col];
      c->u.f = (float)(c->u.f + sum);
      c->bad |= bad;
    }
}

static void issue(Run *r, const ExprId *k, int first) {
  struct Groups *g = groups(r);
  Team *t = &g->team[first / TEAM];
  MmaType type = (MmaType)ev_int(r, k[0], "type of a product");
  int64_t n = ev_int(r, k[1], "columns of a product");
  if (n < 8 || n > COLS || n % 8 || mma_info(type)->terms != 1 || mma_depth(type) > DEPTH)
    err_raise(r->err, NS_ERR_VALUE, "no product of warpgroups has %lld columns of type %d", (long long)n, (int)type);
  if (!t->begun) finding(r, FD_RACE, 1, "a product of warpgroups begins without a fence behind the last wait for one");
  Product *p = g->free;
  if (p)
    g->free = p->next;
  else
    p = arena_new_of(r->keep, Product);
  p->next = NULL, p->n = (int)n, p->group = t->groups;
  p->a.rows = ROWS, p->b.rows = (int)n, p->a.depth = p->b.depth = mma_depth(type);
  bool registers = ir_buffer(r->c, r->node[k[3]].sym)->scope == SC_LOCAL;
  if (registers && type != MMA_TF32) err_raise(r->err, NS_ERR_VALUE, "only factors of TF32 come from registers here");
  check_same(r, k, first, registers);
  p->a.registers = p->b.registers = false;
  if (registers) read_registers(r, k[3], first, &p->a);
  set_thread(r, first);
  if (!registers) read_factor(r, k, 0, &p->a);
  read_factor(r, k, 1, &p->b);
  for (int l = 0; l < TEAM; l++) {
    set_thread(r, first + l);
    p->c[l] = operand_spot(r, k[2], true);
  }
  take_sums(r, t, p, first);
  multiply(&p->a, &p->b, p, type == MMA_TF32);
  for (int l = 0; l < TEAM; l++) {
    set_thread(r, first + l);
    for (int q = 0; q < p->n / 2; q++) operand_put(r, p->c[l], q, (Val){.bad = true});
  }
  Product **end = &t->first;
  while (*end) end = &(*end)->next;
  *end = p;
}

/* Its sums are there, unless a later product adds to them. */
static void finish(Run *r, Product *p, int first) {
  still_there(r, &p->a, first);
  still_there(r, &p->b, first);
  set_thread(r, first);
  for (const Product *q = p->next; q; q = q->next)
    if (q->c[0].mem == p->c[0].mem && q->c[0].at == p->c[0].at) return;
  for (int l = 0; l < TEAM; l++) {
    set_thread(r, first + l);
    for (int q = 0; q < p->n / 2; q++) {
      Spot s = p->c[l];
      if (s.at >= 0 && s.at + q < s.mem->n && s.mem->shadow[s.at + q].init)
        finding(r, FD_RACE, s.mem->id,
                "a race: '%s' is stored to before the products that it belongs to have been waited for",
                ir_buffer(r->c, s.mem->id)->name);
      operand_put(r, s, q, p->sum[sum_of(l, q)]);
    }
  }
}

static void wait_for(Run *r, int64_t under_way, int first) {
  struct Groups *g = groups(r);
  Team *t = &g->team[first / TEAM];
  while (t->first && t->first->group < t->groups - under_way) {
    finish(r, t->first, first);
    drop(g, &t->first);
  }
  t->begun = false;
}

void exec_group(Run *r, const ExprNode *n, int first) {
  const ExprId *k = r->kid + n->kid0;
  Team *t = &groups(r)->team[first / TEAM];
  switch ((Intrin)n->sym) {
  case IN_GROUP_MMA: issue(r, k, first); return;
  case IN_GROUP_BEGIN: t->begun = true; return;
  case IN_GROUP_COMMIT: t->groups++; return;
  default: wait_for(r, ev_int(r, k[0], "groups under way"), first); return;
  }
}
