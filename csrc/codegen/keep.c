/* C only: operands of a tile that several of its statements read are loaded once.
 *
 *   acc_0 = acc_0 + bcast(A[0]) * B[0:8];  acc_8 = acc_8 + bcast(A[0]) * B[8:16];  acc_16 = acc_16 + bcast(A[k]) * B[0:8]; ...
 *
 * Compilers see that B[0:8] is the same in all of them, and gcc then lets each multiplication read it from memory all the same:
 * an instruction less, which is what it counts. But a core has two such loads per cycle, as many as multiplications, so a tile
 * of 4 by 2 vectors took half as long again. So what is read twice or more goes to a variable at its first use, and an empty
 * line of assembly says that it may have changed, which ends what the compiler knows of the place in memory. Only where
 * accumulators and operands fit into the registers together: else some would have to be stored. */
#include "codegen/gen.h"

/* LEAST_BYTES, MOST_BYTES: what a register is to compilers (8 numbers of 8 bits are none to clang). */
enum { MAX_OPERANDS = 32, LEAST_BYTES = 16, MOST_BYTES = 64, OPERAND_REGISTERS = 4 };
typedef struct {
  ExprId e;
  int uses, first, last; /* statements of the run */
} Operand;
typedef struct {
  Gen *g;
  int n, at;
  bool full;
  Operand op[MAX_OPERANDS];
} Keep;

/* A vector that lies in memory, or a number from memory in all lanes. */
static bool is_operand(IrCtx *c, ExprId e) {
  ExprNode n = *ir_node(c, e);
  bool spread = n.kind == IR_BCAST && ir_kind(c, ir_kid(c, e, 0)) == IR_LOAD;
  if (spread) n = *ir_node(c, ir_kid(c, e, 0));
  if (n.kind != IR_LOAD || n.n != 1 || ir_buffer(c, n.sym)->registers) return false;
  if (spread) return true;
  ExprId at = ir_node(c, e)->kind == IR_LOAD ? ir_kid(c, e, 0) : 0;
  return ir_kind(c, at) == IR_BCAST || (ir_kind(c, at) == IR_RAMP && ex_is_int(c, ir_kid(c, at, 1), 1));
}

static void note(Keep *k, ExprId e) {
  int i = 0;
  while (i < k->n && k->op[i].e != e) i++;
  if (i == MAX_OPERANDS) {
    k->full = true;
    return;
  }
  if (i == k->n) k->op[k->n++] = (Operand){.e = e, .first = k->at};
  k->op[i].uses++;
  k->op[i].last = k->at;
}

/* Operands that are read in any case: not those of a choice. */
static void gather(Keep *k, ExprId e) {
  IrCtx *c = k->g->c;
  ExprNode n = *ir_node(c, e);
  if (n.type.lanes == 1) return;
  if (is_operand(c, e))
    note(k, e);
  else if (ir_is_arith(n.kind) || n.kind == IR_CAST)
    for (int i = 0; i < n.n; i++) gather(k, ir_kid(c, e, i));
}

/* How many accumulators the statements have; 0: they are something else than sums in whole registers. */
static int sums(Keep *k, int n, Stmt *const *at, int bytes) {
  IrCtx *c = k->g->c;
  int count = 0;
  for (k->at = 0; k->at < n; k->at++) {
    const Stmt *s = at[k->at];
    DType t = ir_type(c, s->u.store.value);
    if (!ir_buffer(c, s->u.store.buf)->registers || t.lanes * t.bits / 8 != bytes || t.bits < 32) return 0;
    if (!ex_on_vectors(c, s->u.store.value)) return 0;
    gather(k, s->u.store.value);
    count++;
  }
  return count;
}

static const char *keeper(Gen *g, int bytes) {
  const char *name = arena_printf(g->a, "NS_KEEP%d", bytes);
  const char *has = bytes == 16 ? "defined(__SSE2__)" : bytes == 32 ? "defined(__AVX__)" : "defined(__AVX512F__)";
  return gen_helper(g, name,
                    arena_printf(g->a,
                                 "#if %s && defined(__AVX512VL__)\n"
                                 "#define %s(x) __asm__ volatile(\"\" : \"+v\"(x))\n"
                                 "#elif %s\n"
                                 "#define %s(x) __asm__ volatile(\"\" : \"+x\"(x))\n"
                                 "#elif %d == 16 && defined(__aarch64__)\n"
                                 "#define %s(x) __asm__ volatile(\"\" : \"+w\"(x))\n"
                                 "#else\n"
                                 "#define %s(x) (void)0\n"
                                 "#endif\n",
                                 has, name, has, name, bytes, name, name));
}

/* Are accumulators and operands at no time more than the registers? Of what one statement alone reads, a vector stays in memory. */
static bool all_fit(const Keep *k, int sums, int registers) {
  for (int at = 0; at < k->at; at++) {
    int live = sums, once = 0, memory = 0;
    for (int i = 0; i < k->n; i++) {
      const Operand *o = &k->op[i];
      if (o->first > at || o->last < at) continue;
      bool alone = o->uses == 1;
      live += !alone;
      once += alone;
      memory |= alone && ir_kind(k->g->c, o->e) == IR_LOAD && ir_kind(k->g->c, ir_kid(k->g->c, o->e, 0)) == IR_RAMP;
    }
    if (live + once - memory > registers) return false;
  }
  return true;
}

static void declare(Gen *g, ExprId e) {
  DType t = ir_type(g->c, e);
  VarId v = ir_var_new(g->c, "kept", t, false);
  const char *name = gen_var(g, v);
  int bytes = t.lanes * t.bits / 8;
  gen_linef(g, "%s %s = ", gen_vector_type(g, dtype_lanes(t, 1), t.lanes), name);
  gen_vector(g, e);
  sb_puts(g->o, ";\n");
  if (bytes >= LEAST_BYTES && bytes <= MOST_BYTES) gen_linef(g, "%s(%s);\n", keeper(g, bytes), name);
  mapu_set(&g->hoisted, (uint64_t)e, v);
}

void gen_keeping(Gen *g, int n, Stmt *const *at) {
  CpuMachine cpu = cpu_machine(g->p->f.target.cpu);
  Keep k = {.g = g};
  int count = n > 1 ? sums(&k, n, at, cpu.vector_bytes) : 0;
  bool keep = count > 0 && !k.full && all_fit(&k, count, cpu.registers + OPERAND_REGISTERS);
  for (int s = 0; s < n; s++) {
    for (int i = 0; i < k.n && keep; i++)
      if (k.op[i].uses > 1 && k.op[i].first == s) declare(g, k.op[i].e);
    gen_stmt(g, at[s]);
  }
  for (int i = 0; i < k.n && keep; i++)
    if (k.op[i].uses > 1) mapu_set(&g->hoisted, (uint64_t)k.op[i].e, 0);
}
