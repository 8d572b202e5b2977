// What Python calls. Compiled once for each instruction set, into a library of its own.
#include "descent.h"
#include "flows.h"
#include "machine.h"

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

#ifndef ENGINE_SOURCES
#define ENGINE_SOURCES "unknown"
#endif

extern "C" {

// Hash of the sources this library was compiled from. Python looks for it in the file before loading it.
EXPORTED const char *engine_sources() { return ENGINE_SOURCES; }

EXPORTED int engine_lanes() { return LANES; }

// The widest registers this machine has: 8, 4 or 2 numbers.
EXPORTED int engine_widest() { return engine::widest(); }

EXPORTED void *worker_new(const Spec *spec, void *counter) {
  auto &next = *static_cast<std::atomic<int64_t> *>(counter);
  engine::AbstractWorker *made;
  if (spec->update && spec->wide) made = new engine::Descent<double>(*spec, next);
  else if (spec->update) made = new engine::Descent<engine::Lanes>(*spec, next);
  else if (spec->wide) made = new engine::Worker<double>(*spec, next);
  else made = new engine::Worker<engine::Lanes>(*spec, next);
  return made;
}

// Moves members for some seconds; says why it came back.
EXPORTED int worker_advance(void *worker, Records *records, double seconds) {
  return static_cast<engine::AbstractWorker *>(worker)->advance(records, seconds);
}

// Ends all members that still run, with a result that says which limit was reached.
EXPORTED int worker_end(void *worker, Records *records, int result) {
  return static_cast<engine::AbstractWorker *>(worker)->end(records, result);
}

// Eigenvalues and eigenvectors (rows) of a symmetric matrix, in place; whether they were found.
EXPORTED int engine_decompose(int n, double *matrix, double *values) { return engine::decompose(n, matrix, values); }

EXPORTED void worker_free(void *worker) { delete static_cast<engine::AbstractWorker *>(worker); }
}
