/* The runner as a program of its own: `make runner`. */
#include "runner/runner.h"

int main(int argc, char **argv) { return nestsmith_runner_main(argc, argv); }
