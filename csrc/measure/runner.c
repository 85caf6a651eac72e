/* The measuring threads: one per device, each with a worker of its own. A thread takes candidates from the common queue,
 * has its worker run them, and holds the finals of tasks whose round is over.
 *
 * Results are believed when the canary says so (drift.c): what was measured since its last good check waits in the
 * thread's window. If a check finds the device disturbed, the candidates of the window are measured again once it is quiet,
 * a final is repeated, and if the disturbance lasts, the results are marked. Spec 05 §7.6-7.9. */
#include "measure/pipe_int.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REDO = 2, FINAL_TRIES = 3, CHECKS_CPU = 16, CHECKS_GPU = 32 }; /* GPU: 6 ms, several turns of a shared one */
static const double CHECK_SECONDS = 0.5, IDLE_SECONDS = 0.05, WARM_SECONDS = 0.03, PAUSE_GPU = 1, PAUSE_CPU = 0.25,
                    TURN_SECONDS = 2, TELL_SECONDS = 0.16, LOOK = 0.02, MARGIN_SECONDS = 3, MARGIN_TIMES = 1000,
                    PAUSES_GPU = 15, PAUSES_CPU = 3, PAUSES_SHARE = 0.1, REDO_FREE = 32;

static void nap(const Runner *r, double seconds) {
  for (double end = clock_now() + seconds; clock_now() < end && !r->stop;)
    nanosleep(&(struct timespec){0, 10000000}, NULL);
}

/* ---- the device's lock ---- */
static void yield_device(Runner *r) {
  if (r->lock && r->locked && r->p->lock_mode != LOCK_FAIL) {
    devlock_release(r->lock);
    r->locked = false;
  }
}

/* Without p->lock. False: the pipeline ends. */
static bool take_device(Runner *r) {
  Pipeline *p = r->p;
  char holder[400];
  if (!r->lock) return true;
  if (r->locked && clock_now() - r->locked_at > TURN_SECONDS && p->lock_mode != LOCK_FAIL && devlock_wanted(r->lock))
    yield_device(r);
  if (r->locked) return true;
  double begin = clock_now();
  bool told = false;
  while (!(r->locked = devlock_turn(r->lock, clock_now(), holder, sizeof holder)) && !r->stop) {
    if (!told && clock_now() - begin > TELL_SECONDS) {
      pthread_mutex_lock(&p->lock);
      if (!(p->stats.waited_s > 0))
        pipe_say(p, "Device %d is used by another tuner, %s: taking turns with it.\n", r->id, holder);
      p->stats.waited_s += 1e-9;
      pthread_mutex_unlock(&p->lock);
      told = true;
    }
    nap(r, LOOK);
  }
  devlock_leave(r->lock);
  r->locked_at = clock_now();
  if (r->locked_at - begin > LOOK) {
    r->worked = 0; /* somebody else has been here */
    pthread_mutex_lock(&p->lock);
    p->stats.waited_s += r->locked_at - begin;
    pthread_mutex_unlock(&p->lock);
  }
  return r->locked;
}

/* ---- the canary ---- */
static bool gpu(const Runner *r) { return r->p->type == DEV_CUDA; }

/* One check. Without p->lock. */
static bool quiet(Runner *r) {
  double v[CANARY_MAX], pace;
  bool cold = clock_now() - r->worked > IDLE_SECONDS;
  int n = worker_canary(r->worker, cold && gpu(r) ? WARM_SECONDS : 0, gpu(r) ? CHECKS_GPU : CHECKS_CPU, v, &pace);
  pthread_mutex_lock(&r->p->lock);
  bool ok = n <= 0 || drift_check(&r->drift, v, n);
  if (n > 0 && (r->pace == 0 || pace < r->pace)) r->pace = pace;
  r->checked = r->worked = clock_now();
  r->workers = worker_stats(r->worker);
  pthread_mutex_unlock(&r->p->lock);
  return ok;
}

/* With p->lock. */
static void open_window(Runner *r, bool disturbed) {
  for (Job *j; (j = queue_take(&r->window));) {
    j->res.run.disturbed = disturbed;
    pipe_settle(r->p, j);
  }
}

static void recall_window(Runner *r) {
  Pipeline *p = r->p;
  Queue again = {NULL, NULL, 0};
  for (Job *j; (j = queue_take(&r->window));) {
    if (j->res.run.redone >= REDO) {
      j->res.run.disturbed = true;
      pipe_settle(p, j);
      continue;
    }
    j->policy.stop_above = j->policy.full_below = 0; /* set anew */
    p->stats.redone++;
    queue_put(&again, j);
  }
  if (!again.n) return;
  again.tail->next = p->to_run.head;
  if (!p->to_run.tail) p->to_run.tail = again.tail;
  p->to_run.head = again.head;
  p->to_run.n += again.n;
}

static void tell_who(Runner *r) {
  DevWatch w;
  if (!dev_watch(worker_info(r->worker), &w)) return;
  int own = 1; /* this process may have a context; each worker has one, and so has its spare */
  pthread_mutex_lock(&r->p->lock);
  for (int i = 0; i < r->p->n_runners; i++) own += 2 * (r->p->runner[i].id == r->id);
  const char *why = dev_throttle_name(w.throttle);
  if (w.processes > own)
    pipe_say(r->p, "The GPU is used by %d other process%s (`nvidia-smi` lists them).\n", w.processes - own,
             w.processes - own == 1 ? "" : "es");
  else if (*why)
    pipe_say(r->p, "The GPU runs at %d MHz: %s.\n", w.mhz, why);
  pthread_mutex_unlock(&r->p->lock);
}

/* Waiting and measuring again have a price: a quarter of a minute and a tenth of the run on a GPU, little on a CPU, where
 * some noise is normal. Without p->lock. */
static bool worth_it(Runner *r) {
  Pipeline *p = r->p;
  pthread_mutex_lock(&p->lock);
  bool patient = gpu(r) || drift_patient(&r->drift);
  double most = (gpu(r) ? PAUSES_GPU : PAUSES_CPU) + PAUSES_SHARE * (clock_now() - p->first);
  bool few = p->stats.redone < REDO_FREE + PAUSES_SHARE * p->stats.ran;
  pthread_mutex_unlock(&p->lock);
  return patient && few && r->paused < most;
}

/* Waits until the device is quiet, or gives up. Without p->lock. */
static bool settle_down(Runner *r) {
  if (!r->told) tell_who(r);
  r->told = true;
  bool ok = false;
  for (double begin = clock_now(); !ok && !r->stop && worth_it(r); begin = clock_now()) {
    nap(r, gpu(r) ? PAUSE_GPU : PAUSE_CPU);
    r->paused += clock_now() - begin;
    ok = quiet(r);
  }
  return ok;
}

/* A check if one is due; false: it found the device disturbed. After it the window is empty, and the device is quiet or
 * given_up is set. Without p->lock. */
static bool watch(Runner *r, bool now) {
  double t = clock_now();
  bool due = now || t - r->checked > CHECK_SECONDS || (gpu(r) && t - r->worked > IDLE_SECONDS);
  if (!due) return true;
  bool ok = quiet(r), lasts = r->given_up || !worth_it(r);
  pthread_mutex_lock(&r->p->lock);
  if (ok || lasts)
    open_window(r, !ok);
  else
    recall_window(r);
  pipe_changed(r->p);
  pthread_mutex_unlock(&r->p->lock);
  r->given_up = !ok && (lasts || !settle_down(r));
  return ok;
}

/* ---- one candidate ---- */
static int slot_of(Runner *r, int task) {
  int best = 0;
  for (int i = 0; i < MSR_SLOTS; i++) {
    if (r->slot_task[i] == task) {
      best = i;
      break;
    }
    if (r->slot_used[i] < r->slot_used[best]) best = i;
  }
  r->slot_task[best] = task;
  r->slot_used[best] = ++r->tick;
  return best;
}

/* A stopped candidate in full. It takes part in the final if it is better than the incumbent: then it was stopped wrongly. */
static void audit(Runner *r, int slot, Job *j, double best) {
  RunPolicy p = j->policy;
  p.race = false;
  p.stop_above = p.full_below = 0;
  RunResult full = worker_run(r->worker, slot, j->binary, j->n_binary, j->manifest, &p), *old = &j->res.run;
  if (full.error != ME_OK || !full.full) return;
  full.redone = old->redone;
  full.audited = full.cut = true;
  double cost = 0;
  for (int i = 0; i < full.n_costs; i++) cost += full.cost[i] / full.n_costs;
  bool wrong = best > 0 && cost < best;
  if (wrong) full.full = full.cut = false;
  *old = full;
  pthread_mutex_lock(&r->p->lock);
  r->p->stats.audited++;
  if (wrong) {
    r->p->stats.wrong_cuts++;
    Task *t = &r->p->task[j->res.task];
    t->doubt = 2 * t->doubt + 1;
  }
  pthread_mutex_unlock(&r->p->lock);
}

/* An endless candidate is known as one long before the user's limit. */
static double time_limit(const Runner *r, const RunPolicy *p, double best) {
  double limit = p->timeout_s > 0 ? p->timeout_s : 10;
  double least = MARGIN_SECONDS + MARGIN_TIMES * best;
  return gpu(r) && p->race && !p->strict && best > 0 && least < limit ? least : limit;
}

/* What was measured is over, and the device cools down. */
static void measured(Runner *r, const RunPolicy *p) {
  r->worked = clock_now();
  r->rested = r->worked + p->cooldown_s;
}

static void run_one(Runner *r, Job *j) {
  Pipeline *p = r->p;
  Task *t = &p->task[j->res.task];
  RunPolicy policy = j->policy;
  int slot = slot_of(r, j->res.task), redone = j->res.run.redone;
  bool again = j->res.run.seconds > 0;
  double best = t->best, quick = t->best_quick;
  const TaskData *data = t->data;
  race_limits(t, &j->policy);
  policy = j->policy;
  policy.timeout_s = time_limit(r, &policy, quick);
  pthread_mutex_unlock(&p->lock);
  worker_task(r->worker, slot, data);
  j->res.run = worker_run(r->worker, slot, j->binary, j->n_binary, j->manifest, &policy);
  j->res.run.redone = redone + again;
  bool cut = j->res.run.cut, audits = cut && race_audit(j->res.tag);
  if (audits) audit(r, slot, j, best);
  measured(r, &policy);
  pthread_mutex_lock(&p->lock);
  p->stats.ran += !again;
  p->stats.cut += cut && !again;
  p->stats.full += j->res.run.full && !again;
  r->workers = worker_stats(r->worker);
  t = &p->task[j->res.task]; /* the table may have moved */
  if (j->res.run.quick > 0 && !(t->rough > 0 && t->rough < j->res.run.quick)) t->rough = j->res.run.quick;
  if (j->res.run.error == ME_OK)
    queue_put(&r->window, j);
  else
    pipe_settle(p, j);
  pipe_changed(p);
}

/* ---- finals ---- */
static int take_finalists(Task *t, Job **j, RunProgram *prog) {
  int n = 0;
  for (Job *x; n < FINAL_MAX - 1 && (x = queue_take(&t->finalists)); n++) {
    j[n] = x;
    prog[n] = (RunProgram){x->binary, x->n_binary, x->manifest};
  }
  return n;
}

/* False: a worker died or the final was called off. */
static bool hold_final(Runner *r, int slot, int n, const RunProgram *prog, const RunPolicy *policy, uint64_t seed,
                       int keep, FinalResult *f, bool *disturbed) {
  char why[MSR_MSG];
  for (int k = 0; !r->stop; k++) {
    watch(r, false);
    if (!worker_final(r->worker, slot, n, prog, policy, seed + (uint64_t)k, keep, f, why)) return false;
    r->worked = clock_now();
    bool ok = watch(r, true);
    *disturbed = !ok;
    if (ok || r->given_up || k + 1 == FINAL_TRIES) return true;
    pthread_mutex_lock(&r->p->lock);
    r->p->stats.finals_again++;
    pthread_mutex_unlock(&r->p->lock);
  }
  return false;
}

/* With p->lock. */
static void run_final(Runner *r, int task) {
  Pipeline *p = r->p;
  Task *t = &p->task[task];
  Job *j[FINAL_MAX];
  RunProgram prog[FINAL_MAX];
  FinalResult f[FINAL_MAX];
  int n = take_finalists(t, j, prog), slot = slot_of(r, task);
  bool incumbent = t->binary != NULL, disturbed = false;
  if (incumbent) prog[n] = (RunProgram){t->binary, t->n_binary, t->manifest};
  const TaskData *data = t->data;
  t->in_final = r->finalising = true;
  pthread_mutex_unlock(&p->lock);
  worker_task(r->worker, slot, data);
  RunPolicy policy = j[0]->policy;
  bool ok =
      hold_final(r, slot, n + incumbent, prog, &policy, (uint64_t)j[0]->res.tag, incumbent ? n : -1, f, &disturbed);
  policy.race = false;
  policy.stop_above = policy.full_below = 0;
  for (int i = 0; !ok && !r->stop && i < n; i++) { /* one of them broke it: each alone */
    RunResult alone = worker_run(r->worker, slot, j[i]->binary, j[i]->n_binary, j[i]->manifest, &policy);
    alone.redone = j[i]->res.run.redone;
    if (!r->stop) j[i]->res.run = alone;
  }
  measured(r, &policy);
  pthread_mutex_lock(&p->lock);
  t = &p->task[task]; /* the table may have moved */
  t->in_final = r->finalising = false;
  if (!p->stop) r->stop = 0;
  if (ok) race_decide(t, j, n, f, incumbent);
  p->stats.finals++;
  p->stats.finalists += n;
  for (int i = 0; i < n; i++) {
    RunResult *x = &j[i]->res.run;
    p->stats.full += x->full;
    x->disturbed |= disturbed;
    if (!ok) race_alone(t, j[i]);
    pipe_finish(p, j[i]);
  }
  r->workers = worker_stats(r->worker);
  pipe_changed(p);
}

/* ---- the thread ---- */
static bool has_work(Pipeline *p, const Runner *r, int *final) {
  *final = pipe_final_due(p);
  return pipe_may_run(p) && (*final >= 0 || p->to_run.n > 0 || r->window.n > 0);
}

void *runner_main(void *arg) {
  Runner *r = arg;
  Pipeline *p = r->p;
  int final;
  pthread_mutex_lock(&p->lock);
  while (!p->stop) {
    if (!has_work(p, r, &final)) {
      yield_device(r);
      pthread_cond_wait(&p->change, &p->lock);
      continue;
    }
    p->running++;
    bool more = final >= 0 || p->to_run.n > 0;
    pthread_mutex_unlock(&p->lock);
    if (more) nap(r, r->rested - clock_now());
    bool mine = take_device(r);
    pthread_mutex_lock(&p->lock);
    p->run_since[r->number] = clock_now();
    pthread_mutex_unlock(&p->lock);
    if (mine) watch(r, false);
    pthread_mutex_lock(&p->lock);
    Job *j = NULL;
    if (mine && !p->stop) {
      final = pipe_final_due(p);
      if (final >= 0) {
        run_final(r, final);
      } else if ((j = queue_take(&p->to_run))) {
        run_one(r, j);
      } else if (r->window.n > 0) {
        pthread_mutex_unlock(&p->lock);
        watch(r, true);
        pthread_mutex_lock(&p->lock);
      }
    }
    p->running--;
    pipe_count_run(&p->stats, p->first, p->run_since[r->number], clock_now());
    p->run_since[r->number] = 0;
    pipe_changed(p);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}
