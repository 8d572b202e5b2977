// The law of step control: how long the next step is, whether a step stands, which integrator takes it, when a run ends.
#pragma once
#include <algorithm>
#include <cfloat>
#include "lanes.h"
#include "spec.h"

namespace engine {

enum Mode { EXPLICIT, STABILISED, EXPONENTIAL, MODES };
constexpr int MOST_RULES = 8, MOST_DEPTH = 64;

// Moves members until its time is up, or ends them.
struct AbstractWorker {
  virtual ~AbstractWorker() {}
  virtual int advance(Records *records, double seconds) = 0;
  virtual int end(Records *records, int result) = 0;
};

// Where one network stands, its weights aside.
struct Control {
  int64_t member;
  double t, h, rho, error, loss, rtol, atol;
  double before, size;  // norms of the slope and of the weights
  double layers[MOST_DEPTH];  // squared norms of the layers
  double allowed[MODES];      // growth over one step that each integrator follows to the tolerance
  double values[MOST_RULES];
  int64_t cursor, accepted, rejected, stabilised, evaluations;
  int age, stiff, strikes, retries, stalled, rule, result;
};

// A step to try.
struct Trial {
  double h, wanted, goal;
  bool listed, lands;
  Mode mode;
};

// What was measured of a step: squared norms by layer of the new weights and of the error, squared norm of the new
// slope, loss, and the sum of (old + new slope) times the step.
struct Measured {
  double layers[MOST_DEPTH], errors[MOST_DEPTH];
  double slope, value, along;
  int64_t evaluations;
};

struct Judge {
  const Spec *spec;
  int depth, size;
  bool small;
  double eps, tiny, huge;

  explicit Judge(const Spec *s) : spec(s), depth(s->depth), size(0) {
    for (int l = 0; l < depth; l++) size += s->areas[l];
    small = size <= s->law.dense;
    eps = DBL_EPSILON, tiny = DBL_MIN, huge = std::cbrt(DBL_MAX);
  }

  int order(Mode mode) const { return mode == EXPLICIT ? spec->pair.order : 4; }

  // Sets the tolerances, and the growth over one step that order p follows to them: ((p+1)! rtol)^(1/(p+1)).
  void tolerate(Control &c) const {
    c.rtol = spec->rtol[c.member * spec->tolerance_step];
    c.atol = spec->atol[c.member * spec->tolerance_step];
    for (int mode = 0; mode < MODES; mode++) {
      double factorial = 1;
      const int power = order(Mode(mode)) + 1;
      for (int i = 2; i <= power; i++) factorial *= i;
      c.allowed[mode] = std::pow(factorial * c.rtol, 1.0 / power);
    }
  }

  double longest_stabilised(const Control &c) const {
    const double longest = spec->family.interval[spec->family.rows - 1];
    const double sharp = 0.35 * c.rtol / (spec->family.rounding * eps);
    return std::min(std::max(sharp, 10.0), longest) / std::max(c.rho, tiny);
  }

  Trial plan(const Control &c) const {
    const bool switching = spec->policy == 0;
    double cap = INFINITY;
    if (spec->policy == 2 || (switching && !small && c.stiff)) cap = longest_stabilised(c);
    Trial trial;
    trial.wanted = std::min(c.h, cap);
    trial.listed = c.cursor < spec->listed;
    trial.goal = trial.listed ? spec->times[c.cursor] : spec->horizon;
    const double left = trial.goal - c.t;
    trial.h = left <= trial.wanted * (1 + 1e-3) ? left : left < 2 * trial.wanted ? 0.5 * left : trial.wanted;
    trial.lands = trial.h >= left;
    if (!switching)
      trial.mode = spec->policy == 1 ? EXPLICIT : spec->policy == 2 ? STABILISED : EXPONENTIAL;
    else if (!c.stiff)
      trial.mode = EXPLICIT;
    else {
      const double affordable = spec->law.affordable * size / std::max(c.rho, tiny);
      trial.mode = small && trial.h > std::min(affordable, longest_stabilised(c)) ? EXPONENTIAL : STABILISED;
    }
    return trial;
  }

  bool fires(int rule, double value) const {
    return spec->rule_below[rule] ? value <= spec->threshold[rule] : value >= spec->threshold[rule];
  }

  double ruled(int rule, double loss, double slope) const { return spec->rule_kind[rule] ? slope : loss; }

  // Share of a step at which a value on its way from `old` to `now` meets the threshold.
  static double locate(double old, double now, double threshold) {
    double share;
    if (old > 0 && now > 0 && threshold > 0) {
      const double ratio = std::log(old / now);
      share = std::log(old / threshold) / (ratio == 0 ? 1.0 : ratio);
    } else
      share = (old - threshold) / (old == now ? 1.0 : old - now);
    return std::min(std::max(1.005 * share, 0.02), 0.98);
  }

  // State before the first step, from the norms of slope, Jacobian times slope, and weights.
  void open(Control &c, double speed, double bend, double size_, double loss) const {
    c.before = speed, c.size = size_, c.loss = loss;
    c.h = std::min(0.05 * speed / std::max(bend, tiny), (size_ > 0 ? 0.05 * size_ : 1.0) / std::max(speed, tiny));
    c.rho = bend / std::max(speed, tiny);
    c.error = 1;
    c.age = int(spec->law.refresh);
    c.stiff = c.strikes = c.retries = c.stalled = c.rule = 0;
    c.accepted = c.rejected = c.stabilised = 0;
    c.evaluations = 3;
    c.result = speed == 0 ? STEADY : RUNNING;
    for (int r = spec->rules - 1; r >= 0; r--) {
      c.values[r] = ruled(r, loss, speed);
      if (fires(r, c.values[r])) c.result = FIRED, c.rule = r;
    }
    if (!std::isfinite(size_ + speed)) c.result = DIVERGED;
    if (c.t >= spec->horizon && c.result == RUNNING) c.result = COMPLETED;
  }

  // Judges a step and moves the control on; whether the step is taken. `due` says whether a record is wanted.
  bool judge(Control &c, const Trial &trial, const Measured &m, bool &due) const {
    const Law &law = spec->law;
    const int p = order(trial.mode);
    const double exponent = 1.0 / p, limit = c.allowed[trial.mode], h = trial.h;

    // Error of each layer against the layer.
    double worst = 0, total = 0;
    for (int l = 0; l < depth; l++) {
      const double size2 = std::max(c.layers[l], m.layers[l]), size_ = std::sqrt(size2);
      const double scale = std::max(std::max(c.atol + c.rtol * size_, law.floor * eps * size_), tiny);
      worst = std::max(worst, std::sqrt(m.errors[l]) / scale);
      total += m.layers[l];
      if (!(m.errors[l] >= 0)) worst = INFINITY;  // NaN
    }
    // While the gradient grows, a bound on its growth over the step.
    const double speed = std::sqrt(m.slope), before = c.before, size_ = c.size, now = std::sqrt(total);
    const double noise = law.noise * eps * c.rho * size_;
    const double rate = std::max(c.rho, before / std::max(size_, tiny));
    double ratio = worst;
    if (speed > noise && speed > before) {
      const double growth = std::log(speed / before) / limit;
      double power = 1;
      for (int i = 0; i < p; i++) power *= growth;
      ratio = std::max(ratio, power);
    }
    // The loss falls along a flow; where its rise may be rounding, the mean slope along the step decides.
    const double gap = m.value - c.loss, worth = std::fabs(c.loss);
    const bool rounded = gap < 16 * eps * (worth + c.rho * size_ * size_) && m.along > 0;
    if (gap > 1e-9 * worth && !rounded && before > noise) ratio = std::max(ratio, double(1 << p));
    if (!std::isfinite(ratio) || !std::isfinite(m.slope) || !std::isfinite(total)) ratio = INFINITY;
    const bool good = ratio <= 1;
    const double safe = std::min(std::max(ratio, 1e-10), 1e10);
    double factor;
    if (good) {
      const float grow = 0.9f * exp2f(float(exponent) * (-0.7f * log2f(float(safe)) + 0.4f * log2f(float(c.error))));
      factor = std::min(std::max(double(grow), 0.2), 5.0);
    } else
      factor = std::min(std::max(0.9 * exp2f(-float(exponent) * log2f(float(safe))), 0.1), 0.9);
    // A step cut short to land on an output says little about the next one.
    double proposed = good && h < trial.wanted ? std::max(trial.wanted, h * factor) : h * factor;

    // Stopping rules; a step that jumps past its threshold is taken back and shortened.
    bool stop = false, back = false;
    int rule = c.rule;
    double values[MOST_RULES], share = 1;
    for (int r = spec->rules - 1; r >= 0; r--) {
      values[r] = ruled(r, m.value, speed);
      const double threshold = spec->threshold[r];
      const bool met = fires(r, values[r]);
      const bool far = std::fabs(values[r] - threshold) > 0.01 * std::max(std::fabs(threshold), eps * std::fabs(c.values[r]));
      if (met && far) share = std::min(share, locate(c.values[r], values[r], threshold));
      if (met && good) stop = true, rule = r;
    }
    if (spec->rules) {
      back = good && share < 1 && c.retries < law.retries && h * rate > law.instant;
      if (back) stop = false, rule = c.rule, proposed = h * share;
      if (!stop) rule = c.rule;
    }
    const bool take = good && !back;
    const bool was_stiff = c.stiff;

    // Stiffness.
    c.age++;
    if (spec->policy == 0) {
      const double stiffness = h * c.rho, stable = spec->pair.stability;
      const bool near = c.stiff ? take && stiffness < stable / 3 : stiffness > 0.7 * stable;
      const bool away = take && (c.stiff ? !near : stiffness < 0.35 * stable);
      c.strikes = near ? c.strikes + 1 : away ? 0 : c.strikes;
      const bool turn = c.strikes >= (c.stiff ? law.back : law.strikes);
      // A stabilised step may have failed because the radius has grown.
      if (turn || (c.stiff && !good)) c.age = int(law.refresh);
      if (turn) c.stiff = !c.stiff, c.strikes = 0;
    }

    // Far shorter steps than a smooth field allows, again and again, mean that errors are rounding or noise.
    const bool crawls = h * rate < law.crawl * limit;
    c.stalled = h < trial.wanted ? c.stalled : crawls ? c.stalled + 1 : 0;

    c.accepted += take;
    c.rejected += !good;
    c.stabilised += take && was_stiff;
    c.evaluations += m.evaluations;
    const bool ended = trial.lands && trial.goal >= spec->horizon;
    if (take && stop) c.result = FIRED;
    else if (take && ended) c.result = COMPLETED;
    else if (take && speed == 0) c.result = STEADY;
    else if ((!good && proposed * before <= 1e-3 * eps * size_) || c.stalled >= law.patience) c.result = STEP_TOO_SMALL;
    else if (take && std::max(now, speed) > huge) c.result = DIVERGED;
    else if (c.accepted >= spec->max_steps) c.result = STEP_LIMIT;
    due = take && ((trial.lands && trial.listed) || (spec->every > 0 && c.accepted % spec->every == 0));
    c.h = proposed;
    c.rule = rule;
    c.retries = back ? c.retries + 1 : 0;
    if (take) {
      c.t = trial.lands ? trial.goal : c.t + h;
      c.error = std::max(safe, 1e-4);
      c.loss = m.value, c.before = speed, c.size = now;
      std::copy(m.layers, m.layers + depth, c.layers);
      std::copy(values, values + spec->rules, c.values);
      c.cursor += trial.lands && trial.listed;
    }
    return take;
  }
};

}  // namespace engine
