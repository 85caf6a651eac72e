/* Runs the network once: reads its inputs from files, writes its outputs. All files hold the bytes of a tensor, row by row. */
#include "network.h"
#include <stdio.h>
#include <stdlib.h>

static void **storage, ***work;

void fail(const char *what, const char *which) {
  fprintf(stderr, "%s: %s %s\n", network_name, what, which);
  exit(1);
}

static void *place(int v) { return (char *)storage[value[v].storage] + value[v].at; }

static void *room(size_t bytes) {
  void *p = calloc(bytes + 1, 1);
  if (!p) fail("out of", "memory");
  return p;
}

static void read_value(FILE *f, const char *name, int v) {
  void *bytes = room(value[v].bytes);
  if (!f || fread(bytes, 1, value[v].bytes, f) != value[v].bytes) fail("cannot read", name);
  device_write(place(v), bytes, value[v].bytes);
  free(bytes);
}

static void load(void) {
  device_open();
  storage = room(sizeof *storage * (size_t)n_storages);
  work = room(sizeof *work * (size_t)n_programs);
  for (int i = 0; i < n_storages; i++) storage[i] = device_memory(storage_bytes[i]);
  for (int i = 0; i < n_programs; i++) {
    device_load(i);
    work[i] = room(sizeof **work * (size_t)program[i].n_work);
    for (int k = 0; k < program[i].n_work; k++) work[i][k] = device_memory(program[i].work[k]);
  }
  FILE *f = n_weights ? fopen("weights.bin", "rb") : NULL;
  for (int i = 0; i < n_weights; i++) read_value(f, "weights.bin", weight[i].value);
  if (f) fclose(f);
}

static void run(void) {
  void *args[256];
  for (int i = 0; i < n_calls; i++) {
    const Call *c = &call[i];
    if (c->n_args > 256) fail("too many arguments of", program[c->program].file);
    for (int k = 0; k < c->n_args; k++) args[k] = place(c->arg[k]);
    if (device_call(c->program, args, work[c->program]) != 0) fail("an index is out of range, or memory is, in", program[c->program].file);
  }
}

static void check_reports(void) {
  for (int i = 0; i < n_programs; i++) {
    uint32_t found = 0;
    if (program[i].report < 0 || program[i].entry) continue;
    device_read(&found, work[i][program[i].report], sizeof found);
    if (found) fail("an index is out of range in", program[i].file);
  }
}

int main(int argc, char **argv) {
  if (argc != 1 + n_inputs + n_outputs) {
    fprintf(stderr, "usage: %s FILES\n", argv[0]);
    for (int i = 0; i < n_inputs; i++) fprintf(stderr, "  input %s: %s, %zu bytes\n", input[i].name, input[i].type, value[input[i].value].bytes);
    for (int i = 0; i < n_outputs; i++) fprintf(stderr, "  output %s: %s, %zu bytes\n", output[i].name, output[i].type, value[output[i].value].bytes);
    return 2;
  }
  load();
  for (int i = 0; i < n_inputs; i++) {
    FILE *f = fopen(argv[1 + i], "rb");
    read_value(f, argv[1 + i], input[i].value);
    fclose(f);
  }
  run();
  check_reports();
  for (int i = 0; i < n_outputs; i++) {
    const char *path = argv[1 + n_inputs + i];
    size_t n = value[output[i].value].bytes;
    void *bytes = room(n);
    device_read(bytes, place(output[i].value), n);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) fail("cannot write", path);
    free(bytes);
  }
  return 0;
}
