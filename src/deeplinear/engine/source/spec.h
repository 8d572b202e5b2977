// What Python hands over; mirrored field by field in `_library.py`.
#pragma once
#ifndef __CUDACC__
#include <cstdint>
#endif

extern "C" {

// Numbers of the law of step control.
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

// A discrete update, if there is one.
struct Update {
  int32_t kind;              // 0 none but a flow, then as in `updates.h`
  int32_t nesterov;
  const double *numbers;     // of each member: learning rate, two decays, and what is added to roots
  int64_t numbers_step;
  int32_t marks;             // steps at which the rate is multiplied by a factor
  const int64_t *mark;
  const double *factor;
  int64_t mark_step, factor_step;
  double *moments;           // members x 2 x weights
  int32_t batch;             // terms drawn for each step, 0 for all
  int64_t terms;             // how many there are, where that is no matter of the mask
  const uint32_t *keys;      // of each member, two words
  const double *inputs, *outputs;           // samples, in columns
  const int64_t *places;                    // entries of the matrix that are listed as observed
  const double *observed;                   // and what was observed
  int64_t inputs_step, outputs_step, places_step, observed_step;
};

struct Spec {
  int32_t form;           // 0 a deep linear network, then the forms of recurrent ones
  int32_t depth;          // arrays of weights
  const int32_t *widths;  // of the layers; of a recurrent network states, length, inputs, outputs
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
  // States: read at the beginning, written at the end.
  double *y, *direction;  // members x weights
  double *real;           // members x REALS
  int64_t *whole;         // members x WHOLES
  Update update;
  void *dgemm;
  double least;
  volatile int32_t *stop;
};

enum { REAL_T, REAL_H, REAL_RHO, REAL_ERROR, REAL_LOSS, REAL_SLOPE, REALS };
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

namespace engine {

// Whether a value meets a stopping rule.
inline bool fires(const Spec &spec, int rule, double value) {
  return spec.rule_below[rule] ? value <= spec.threshold[rule] : value >= spec.threshold[rule];
}

}  // namespace engine
