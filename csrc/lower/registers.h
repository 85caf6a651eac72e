/* What the two files of pass_registers share; not part of the folder's face. */
#ifndef NS_LOWER_REGISTERS_H
#define NS_LOWER_REGISTERS_H
#include "lower/util.h"

enum { MAX_PIECES = 64, MIN_LANES = 4 };
typedef struct {
  IrCtx *c;
  Arith *ar;
  CpuMachine cpu;
  MapU64 reads, made; /* of a buffer in the program as it comes: how many loads there are; is it an array of its own? */
} Regs;
typedef struct {
  int64_t first;
  int lanes;
} Piece;
typedef struct {
  BufferId buf;
  ExprId idx;
  bool same, other;
} SelfRead;

/* Does an expression read the buffer at idx, or elsewhere? For ex_post_order, with a SelfRead. */
void rg_self_read(IrCtx *c, ExprId e, void *arg);
int rg_lanes_at_most(const Regs *g, const Stmt *store);
bool rg_supported_store(const Regs *g, const Stmt *s);
/* Store s with v = first + lane, lane in [0, lanes), as one vector statement; NULL if that is not possible. strict: every access
 * must be contiguous or uniform. */
Stmt *rg_widen(Regs *g, const Stmt *s, VarId v, ExprId first, int lanes, bool strict);
/* Cuts [0, n) of loop variable v into pieces for all the stores; 0: cannot. Remainders get narrower pieces, at last single elements. */
int rg_cut(Regs *g, int n_store, Stmt *const *store, VarId v, ExprId base, int64_t n, Piece *out, int max);
Stmt *rg_piece_of(Regs *g, const Stmt *s, VarId v, ExprId first, int lanes, bool strict);
/* Of a loop of stores; of one around straight code. NULL: it cannot be on vectors. */
Stmt *rg_vector_loop(Regs *g, const Stmt *s);
Stmt *rg_guarded_loop(Regs *g, const Stmt *s); /* a vector loop whose last lanes may be beyond an end; NULL: it is none */
Stmt *rg_wide_loop(Regs *g, const Stmt *s);
#endif
