/* Private to the files of the policy: sample.c, evolve.c, round.c, policy.c. */
#ifndef NS_SEARCH_POLICY_H
#define NS_SEARCH_POLICY_H
#include "search/space.h"

enum { CHUNK = 16 }; /* slots that one item of work fills */

/* ---- memo.c ---- */
typedef struct Memo Memo;
enum { MET_REFUSED = 1, MET_ESTIMATE = 2, MET_BAD = 4 };
typedef struct {
  uint64_t hash; /* of the state; 0 if it is refused: it cannot be replayed and bounded, or is no program */
  double estimate;
  const Traits *traits; /* NULL: not known, or MET_BAD: there are none, for it breaks a limit or cannot be lowered */
  unsigned have;
} Met;
uint64_t steps_hash(int n, const Step *s);
Memo *memo_new(void); /* NULL: out of memory */
void memo_free(Memo *m);
void memo_limit(Memo *m, size_t bytes); /* about what both generations of traits may take */
void memo_age(Memo *m); /* between calls: forgets what is old */
bool memo_get(Memo *m, uint64_t steps, Arena *a, Met *out); /* traits: in a; NULL: they are not wanted */
void memo_put(Memo *m, uint64_t steps, const Met *k); /* adds to what is known; copies traits */

typedef struct {
  int n;
  Step *step;
  uint64_t hash;
  double score;
  bool full; /* scored by the cost model, not only by the draft estimate */
} Cand;
typedef VEC(Cand) CandVec;

typedef struct {
  Err err;
  IrCtx *ctx;
  Arena *keep, *out[2]; /* factor table and sketches; step lists of the even and odd generation */
  IrMark base;
  MakeEnv env;
  int64_t mutated, refused;
  ErrCode score_code; /* what a cost model raised, to be raised again by the caller's thread */
  char score_msg[ERR_MSG_MAX];
} SearchThread;

struct Policy {
  Arena *call; /* of the call that runs: a worker's arenas raise where that worker works, not here */
  const SearchTask *task;
  SearchParams par;
  Err err;
  Arena *arena; /* lives with the policy */
  Rng rng;
  Pool *pool;
  Scorer scorer;
  Memo *memo;
  unsigned want; /* of candidates */
  int layout;
  VEC(CustomRule) rules;
  bool has_sketches;
  StateList sketches;
  /* picked_tiles: how many states of each tiling of the output were picked, or are in a log */
  MapU64 measured_set, picked_tiles;
  int64_t picked[FAMILIES];
  int64_t done, total; /* trials of the run; total 0: nobody said */
  CandVec measured; /* score: speed, 1 / seconds */
  CandVec hints;    /* the newest MAX_HINTS proposals from outside */
  CandVec first;    /* those that the next round begins with */
  int target_min, n_worker;
  SearchThread *worker; /* NULL between calls */
  void (*listen)(void *self, const PolicyEvent *ev);
  void *listen_self;
};

typedef struct {
  Policy *p;
  Arena *a;
  StateList out, init;
  int size, batch;
  Candidate **made;
} Call;


/* Work on an array of slots, cut into chunks. */
typedef struct {
  Policy *p;
  SearchThread *w;
  ErrBody make;        /* what fills a slot */
  int gen, n;          /* gen: which of the two arenas receives the result */
  Rng *rng;            /* one per slot; sampling and breeding */
  const Cand *parent;  /* breeding: the old generation */
  const double *share; /* breeding: running sums of its scores */
  int n_parent;
  Cand *slot; /* results; step NULL: none */
  State *state[CHUNK];
  int state_slot[CHUNK], n_state, scored; /* scored: the one that is being scored */
  uint64_t state_id[CHUNK], id; /* hashes of step lists; id: of the slot being made, 0: it has none yet */
  int at;                       /* slot being made */
  Ranking by;
  bool draft; /* the estimate is not the last word */
  const char **why; /* per slot: why sampling refused, or NULL */
} Job;

/* The best unmeasured states so far: a binary heap with the worst at the root. */
typedef struct {
  Arena *a;
  Cand *at;
  int n, cap;
  MapU64 known;
} Best;


/* ---- policy.c ---- */
void pol_tell(Policy *p, PolicyEvent ev);
/* Runs the body of a public call, on a Call; an error inside is raised again where the caller listens. */
Call pol_guarded(Err *caller, ErrBody body, Call call);
void pol_workers_open(Policy *p);
void pol_workers_close(Policy *p);
/* what w's slot for errors says ends the call: pol_run raises it on the caller's thread */
void pol_ends(SearchThread *w, ErrCode c);
void pol_run(Policy *p, int64_t items, PoolJob job, void *arg);
StateList pol_list_out(Arena *a, int n, const Cand *c);

/* ---- sample.c: making candidates in chunks, the sampling loop ---- */
enum { SLOTS_SAMPLE, SLOTS_GIVEN, SLOTS_CHILD };
void slots_fill(Job *j, int kind);
int by_score(const void *x, const void *y); /* of pointers to Cand in one array, best first, equal ones as they come */
Rng *slot_rngs(Policy *p, Arena *a, int n);
void evaluate(Policy *p, int gen, int n, Cand *c); /* scores given states in place; those that fail lose their steps */
bool drafting(const Policy *p);                    /* is the draft estimate asked before the model? */
typedef struct {
  MapU64 at;
  VEC(double) score;
} Known; /* what the cost model said of states of this round, by hash */
Known known_new(Arena *a);
void known_add(Arena *a, Known *k, const Cand *c);
/* Scores the best of the drafted states and a few random ones by the cost model; the others lose their steps. */
void refine(Policy *p, Arena *a, int gen, int n, Cand *c, Known *known);
void sample(Policy *p, Arena *a, CandVec *out);    /* distinct valid states, steps in a */

/* ---- descent.c ---- */
int descent_due(const Policy *p, int batch); /* how many of the round that comes, its last ones */
void descend(Policy *p, int room, int *n_out, Candidate **out);

/* ---- round.c ---- */
const Cand **fastest(Policy *p, Arena *a, int *n); /* the valid measured states, best first */
/* Takes from a list, in order and as long as there is room, the states that were never picked and pass the verifier. */
void take(Policy *p, int n, const Cand *c, int room, int *n_out, Candidate **out);

/* ---- evolve.c ---- */
Best best_new(Arena *a, int cap);
int drop_empty(int n, Cand *c); /* moves those with steps to the front; their number */
void evolve(Policy *p, Arena *a, int n, Cand *now, int size, Best *best); /* size: children of a generation */
#endif
