// What Python hands over; mirrored field by field in `_library.py`.
#pragma once
#include <cstdint>

extern "C" {

// Numbers of the law of step control, declared in `dynamics/_law.py`.
struct Law {
  double refresh, strikes, floor, dense, back, instant, crawl, patience, retries, affordable, margin, noise;
};

// An explicit pair whose last stage is the new state.
struct Pair {
  int32_t stages, order;
  const double *lower;  // stages x stages
  const double *error;
  double stability;
};

// The stabilised family; weights of row r begin at offset[r], six for each stage, stage 0 included.
struct Family {
  int32_t rows;
  const int64_t *stages, *first, *second, *offset;
  const double *interval, *mixing, *weights;
  double rounding;
};

struct Spec {
  int32_t form;           // 0 a deep network; else a recurrent one, and how its transition matrix is written
  int32_t depth;          // layers, or matrices of weights
  const int32_t *areas;   // weights of each
  const int32_t *widths;  // of a deep network; of a recurrent one inputs, states, outputs and length
  int64_t members;
  int32_t loss;  // 0 squared distance, 1 regression, 2 completion
  // Numbers of the loss, and how far those of the next member are.
  const double *target, *mask, *sxx, *solution, *offset, *l2;
  int64_t target_step, mask_step, sxx_step, solution_step, offset_step, l2_step;
  const double *rtol, *atol;
  int64_t tolerance_step;
  int32_t policy;  // 0 switching, 1 the pair, 2 the stabilised family, 3 the exponential method
  Pair pair;
  Family family;
  Law law;
  int32_t rules;
  const int32_t *rule_kind, *rule_below;  // kind 0: loss, 1: norm of the gradient
  const double *threshold;
  int64_t listed;
  const double *times;
  int64_t every;
  double horizon;
  int64_t max_steps;
  int32_t opens;    // whether the first state is recorded
  int32_t resumed;  // whether `real`, `whole` and `direction` hold the memory of an earlier run
  int64_t first;    // listed time to begin with
  int32_t wide;     // one network at a time
  int32_t keeps;    // whether records hold the weights
  int32_t update;       // 0 for a flow; else the kind of a discrete update
  const double *rates;  // of an update: four numbers, and how far those of the next member are
  int64_t rates_step;
  double *inner;  // what an update remembers, members x slots x weights
  // States: read at the beginning, written at the end.
  double *y, *direction;  // members x weights
  double *real;           // members x REALS
  int64_t *whole;         // members x WHOLES
  void *dgemm;
  double least;
  volatile int32_t *stop;
};

enum { REAL_T, REAL_H, REAL_RHO, REAL_ERROR, REAL_LOSS, REALS };
enum {
  WHOLE_AGE, WHOLE_STIFF, WHOLE_STRIKES, WHOLE_ACCEPTED, WHOLE_REJECTED, WHOLE_STABILISED, WHOLE_EVALUATIONS,
  WHOLE_RESULT, WHOLE_RULE, WHOLES
};

// Where records go; `filled` of `room` rows are in use.
struct Records {
  int64_t room, filled;
  int64_t *member;
  double *time, *loss, *slope, *states;
};

enum { STATUS_WORKING, STATUS_DONE, STATUS_FULL, STATUS_STOPPED };
}

// Outcomes, as `core.RESULTS` numbers them.
enum {
  RUNNING, COMPLETED, FIRED, STEADY, STEP_LIMIT, WALL_LIMIT, INTERRUPTED, DIVERGED, STEP_TOO_SMALL
};
