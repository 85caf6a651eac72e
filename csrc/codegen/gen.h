/* Private to codegen: the state of one printing job and the calls between its files. */
#ifndef NS_GEN_H
#define NS_GEN_H
#include "codegen/codegen.h"

typedef struct {
  TargetKind kind;
  const char *block[3], *thread[3]; /* text of the hardware indices */
  const char *barrier;
  const char *unroll;               /* line before a loop to be unrolled; %lld: its extent */
  const char *shared, *local_align; /* declaration prefix of shared arrays; alignment prefix of local arrays */
  const char *global;               /* address space of pointers: "", "__global " */
  int max_vector_bytes;             /* widest memory access; 0: vectors are printed as lane loops */
} GenTarget;

/* How a sum of integers may be printed: as it is defined; so that its low bits are right (it goes to memory); as one that
 * cannot overflow. */
typedef enum { PLAIN_NO, PLAIN_LOW_BITS, PLAIN_INDEX } Plain;

typedef struct {
  uint64_t key;
  int32_t first;
} LaneEntry; /* ExprId, or VarId << 32 of a vector let; first of its lanes in lane_var */

typedef struct Cursors Cursors;

typedef struct {
  const Program *p;
  const Kernel *k; /* being printed */
  IrCtx *c;
  Arena *a;
  Err *err;
  const GenTarget *t;
  Arith *ar;
  StrBuf *o;   /* where text goes now */
  StrBuf *top; /* functions printed before the current one (outlined parallel loops) */
  int indent;
  MapU64 var_name, buf_name; /* VarId, BufferId -> index into names */
  VEC(const char *) names;
  MapStr used;          /* identifiers taken */
  MapU64 piece_name;    /* C: buffer << 32 | offset of a piece of a buffer in registers -> index into names */
  MapU64 hoisted;       /* ExprId -> VarId of a constant at kernel entry, before a run of stores, of an operand that is kept */
  MapU64 let_inline;    /* VarId -> ExprId: expression lets, printed in place */
  VEC(LaneEntry) lanes; /* a stack: vector expressions whose lanes are in variables */
  VEC(VarId) lane_var;
  VarId inner;         /* of the innermost loop */
  const Cursors *cursors; /* of the loop over slices that is printed; NULL: none */
  ExprId serial;       /* a minimum or maximum that the innermost loop accumulates: no compiler makes vectors of it */
  Plain plain;         /* of the sum to be printed next */
  MapU64 buf_of_var;   /* C: VarId of a vector let -> the array that holds it */
  VEC(VarId) live_var; /* C: what an outlined loop can capture */
  VEC(BufferId) live_buf;
  MapStr helper_set; /* helper functions the text needs, in order of first use */
  VEC(const char *) helper;
  int n_par, in_parallel, n_tmp;
  bool heap_used, math_used;
  bool divides_by_any; /* C: the function that is being printed has such a division, and needs ns_zero */
  MapU64 product, product_in; /* contract.c */
  bool flows_known, apart;
  bool share; /* indices of runs of stores are shared */
  bool hoist_pending; /* GPU: the first statement below the thread loops is still to come */
} Gen;

/* names.c */
const char *gen_fresh(Gen *g, const char *base);
const char *gen_entry(Arena *a, const char *name); /* a CPU program's function: its name, or a legal one close to it */
const char *gen_var(Gen *g, VarId v);
const char *gen_buf(Gen *g, BufferId b);
void gen_var_as(Gen *g, VarId v, const char *text); /* v prints as text */

/* types.c */
const char *gen_type(Gen *g, DType t);                                                  /* of a value in registers */
const char *gen_storage(Gen *g, DType t);                                               /* of an element in memory */
const char *gen_buffer_storage(Gen *g, BufferId b);                                     /* the same of this buffer */
const char *gen_signed_again(Gen *g, BufferId b); /* the cast of an element of b to its type, "" if it has it in memory */
const char *gen_vec_storage(Gen *g, DType t, int lanes, int lane, const char **access); /* NULL: no such vector */
bool gen_is_small_float(DType t); /* 16-bit floats: stored as such, computed in float32 */
const char *gen_small_float(Gen *g, DType t, bool store); /* the function that makes float32 of one's bits, or its bits */
void gen_int(Gen *g, DType t, int64_t v);
void gen_flt(Gen *g, DType t, double v);

/* math.c */
const char *gen_helper(Gen *g, const char *name, const char *text); /* the program starts with it; returns name */
/* The helper function TYPE NAME, form: its parameters and what follows; returns name. */
const char *gen_function(Gen *g, const char *type, const char *name, const char *form, ...) NS_PRINTF(4, 5);
const char *gen_suffix(Gen *g, DType t);  /* "f32", "i8" */
void gen_call(Gen *g, ExprId e);
bool gen_ends_in_product(const Gen *g, Intrin in, DType t); /* may a compiler see one there, and fuse it with a sum? */
const char *gen_vector_type(Gen *g, DType t, int w);                 /* gnuvec.c: GNU C's type of w elements */
const char *gen_vector_function(Gen *g, Intrin in, DType t);         /* vecmath.c: of what intrin_on_vectors says */
void gen_choose(Gen *g);                                             /* minmax.c: NS_CHOOSE */

/* warp.c: the instructions of NVIDIA's warps; false: in is none */
bool gen_warp(Gen *g, ExprId e, Intrin in);
const char *gen_mma(Gen *g, MmaType t); /* name of the function that multiplies fragments; TF32X3: factors as they are, no parts of them */
const char *gen_to_tf32(Gen *g); /* name of the function that rounds the bits of a float32, on all targets */

/* three.c: prints the products of float32 in three terms that at begins with; returns how many */
void gen_parts(Gen *g, ExprId e); /* of a factor of three terms */
int gen_three(Gen *g, int n, const Stmt *const *at);

/* contract.c: sums of floats of which no product may be fused that the user wrote */
bool gen_float_sum(Gen *g, ExprId e); /* prints an ADD or SUB that cannot be printed as it stands; false: it can */
bool gen_apart(Gen *g);               /* OpenCL: must the kernel forbid the compiler to fuse anything? */
void gen_holds(Gen *g, VarId v, BufferId b, ExprId value); /* a variable or buffer of the printer's own; one of them is 0 */

/* minmax.c */
void gen_min_max(Gen *g, ExprId e, DType t);
void gen_min_max_vector(Gen *g, ExprId e, const char *vector_type);

/* expr.c: scalars only */
void gx(Gen *g, ExprId e);
void gx_top(Gen *g, ExprId e);                      /* without outer parentheses */
/* An operation as this text, in which $0 is its first operand, $t0 the same without outer parentheses, $l0 the element that
 * a load there names, and $v0 a vector. */
void gen_form(Gen *g, ExprId e, const char *form, ...) NS_PRINTF(3, 4);
/* a sum without its constant terms, which are added to *k; 0: none */
ExprId gen_strip_constants(Gen *g, ExprId e, int64_t *k);
void gen_element(Gen *g, BufferId b, ExprId index); /* lvalue text b[index] */
void gen_load(Gen *g, BufferId b, ExprId index);    /* element converted to its value type */
void gen_to_storage(Gen *g, DType t, ExprId value); /* value converted to what an element of type t holds */
const char *gen_from_storage(Gen *g, DType t, const char *text);                   /* the reverse, around text */
void gen_vec_ptr(Gen *g, BufferId b, ExprId base, const char *vec, bool constant); /* *(vec *)(b + base) */

/* vector.c */
ExprId gen_lane(Gen *g, ExprId e, ExprId lane); /* the scalar expression of one lane */
void gen_vector_store(Gen *g, const Stmt *s);
void gen_vector_let(Gen *g, const Stmt *s);
/* gnuvec.c: C only; true if the statement was printed with GNU vectors */
bool gen_gnu_store(Gen *g, const Stmt *s);
void gen_vector(Gen *g, ExprId e);
void gen_registers(Gen *g, BufferId b, const Stmt *body);      /* declares the pieces of b that body uses */
const char *gen_piece(Gen *g, BufferId b, ExprId at);          /* name of the piece of b at a constant position */

/* stmt.c */
void gen_stmt(Gen *g, const Stmt *s);
void gen_line(Gen *g);                 /* starts a line */
void gen_linef(Gen *g, const char *form, ...) NS_PRINTF(2, 3); /* and prints so much of it */
void gen_open(Gen *g);                                         /* "{" behind what the line says; what follows is inside */
void gen_close(Gen *g, const char *after);                     /* "}" and that */
void gen_const_line(Gen *g, const char *type, const char *name, ExprId value); /* const TYPE NAME = VALUE; */
/* hoist.c */
void gen_hoist(Gen *g, const Stmt *s); /* constants at kernel entry */
int gen_share_indices(Gen *g, int n, Stmt *const *at); /* prints the stores that at begins with; returns how many */
/* cursor.c, CUDA: pointers that advance with a loop over slices */
const Cursors *gen_cursors_open(Gen *g, const Stmt *loop); /* declares them before it; NULL: there are none */
void gen_cursors_close(Gen *g, const Cursors *w);          /* advances them, at its end */
const char *gen_cursor(Gen *g, ExprId load);               /* the address of an element beside one of them; NULL: it is beside none */
/* keep.c: prints stores; operands that several of them read are loaded once */
void gen_keeping(Gen *g, int n, Stmt *const *at);
int64_t gen_const(Gen *g, ExprId e, const char *what);
void gen_walk(Gen *g, const Stmt *s, ExprVisit f, void (*stmt)(Gen *, const Stmt *, void *),
              void *arg); /* each expression (post-order), each statement */

/* c.c, gpu.c */
void gen_c_kernel(Gen *g);
void gen_c_parallel(Gen *g, const Stmt *s); /* an outlined function and its call */
const char *gen_c_alloc(Gen *g, BufferId b,
                        bool work); /* declares; returns the name of a heap array to be freed, or NULL */
void gen_gpu_kernel(Gen *g);
int64_t gen_dynamic_shared(const Program *p, const Kernel *k); /* bytes to be passed at launch; 0: all static */
bool gen_waits(const Program *p); /* its kernels wait for the launch before */
void gen_launch_wait(Gen *g); /* that */
void gen_launch_next(Gen *g); /* the next one may begin */
extern const GenTarget GEN_C, GEN_CUDA, GEN_OPENCL;
#endif
