// Members of an ensemble moved by a discrete update, as many side by side as there are lanes.
#pragma once
#include <atomic>
#include <chrono>
#include "draws.h"
#include "network.h"
#include "updates.h"
#include "worker.h"

namespace engine {

template <class T> struct Descents : AbstractWorker {
  static constexpr int L = lanes_of<T>;

  // Where the network of a lane stands.
  struct Place {
    int64_t member = -1, accepted, cursor;
    double t, loss, slope;
    int result, rule;
    bool due;               // whether this state is to be recorded
    std::vector<int> seen;  // observed entries
  };

  const Spec &spec;
  const Update &update;
  Blas blas;
  std::atomic<int64_t> &next;
  Network<T> net;
  int n;
  Journal journal;
  Rule<T> rule;
  Draws draws;
  Place place[L];
  Numbers<T> numbers;
  Array<T> y, f, m, v, new_y, new_m, new_v, inputs, outputs, fitted;
  T share;                        // of a batch in the penalty
  Array<double> row;
  bool broadcast = false, more = true;

  Descents(const Spec &s, std::atomic<int64_t> &counter)
      : spec(s), update(s.update), blas{(decltype(blas.dgemm))s.dgemm, s.least}, next(counter), net(s, blas),
        n(net.size), journal{s, n, {}}, numbers{}, share{}, row(n) {
    const bool mean = update.kind == MOMENTUM || update.kind == ADAM;
    const bool square = update.kind == ADAM || update.kind == RMSPROP || update.kind == ADAGRAD;
    for (auto *one : {&y, &f, &new_y}) one->resize(n);
    for (auto *one : {&m, &new_m}) one->resize(mean ? n : 0);
    for (auto *one : {&v, &new_v}) one->resize(square ? n : 0);
    if (update.inputs) {
      inputs.resize(size_t(net.model->columns) * update.batch);
      for (auto *one : {&outputs, &fitted}) one->resize(size_t(net.model->rows) * update.batch);
    }
  }

  // --- Lanes

  void enter(int at, int64_t member) {
    if (!net.shared())
      net.take(member, at);
    else if (!broadcast)
      net.take(0, -1), broadcast = true;
    Place &p = place[at];
    p.member = member, p.cursor = spec.first, p.t = spec.real[member * REALS + REAL_T];
    p.accepted = spec.resumed ? spec.whole[member * WHOLES + WHOLE_ACCEPTED] : 0;
    p.rule = 0, p.due = spec.opens;
    if (spec.opens && spec.listed > 0) p.cursor++;  // the first listed time is that of the start
    const double *from = spec.y + member * n, *moments = update.moments + 2 * member * n;
    bool finite = true;
    for (int i = 0; i < n; i++) put(y[i], at, from[i]), finite = finite && std::isfinite(from[i]);
    for (size_t i = 0; i < m.size(); i++) put(m[i], at, moments[i]);
    for (size_t i = 0; i < v.size(); i++) put(v[i], at, moments[n + i]);
    p.result = !finite ? DIVERGED : p.t >= spec.horizon ? COMPLETED : RUNNING;
    const double *own = update.numbers + member * update.numbers_step;
    put(numbers.rate, at, own[0]), put(numbers.one, at, own[1]), put(numbers.two, at, own[2]), put(numbers.eps, at, own[3]);
    if (!update.batch) return;
    if (update.inputs) {
      put(share, at, 1.0);
      return;
    }
    int64_t terms = update.terms;
    if (!update.places) {
      p.seen.clear();
      const double *mask = spec.mask + member * spec.mask_step;
      for (int i = 0; i < net.loss.area; i++)
        if (mask[i] != 0) p.seen.push_back(i);
      terms = int64_t(p.seen.size());
    }
    put(share, at, std::min(double(update.batch) / double(terms), 1.0));
  }

  // Gives free lanes to members that wait; whether any lane is taken.
  bool fill() {
    bool any = false;
    for (int l = 0; l < L; l++) {
      if (place[l].member < 0 && more) {
        const int64_t member = next.fetch_add(1);
        more = member < spec.members;
        if (more) enter(l, member);
      }
      any = any || place[l].member >= 0;
    }
    return any;
  }

  // --- Where the networks are: slope and loss, records, rules

  void evaluate(bool last) {
    bool wanted = last || spec.rules > 0;
    for (const Place &p : place) wanted = wanted || (p.member >= 0 && (p.due || p.result != RUNNING));
    if (!wanted && update.batch) {
      net.forward(y.data());
      return;
    }
    const T value = net.slope(y.data(), f.data(), wanted);
    if (!wanted) return;
    T square{};
    for (int i = 0; i < n; i++) square += f[i] * f[i];
    for (int l = 0; l < L; l++) place[l].loss = get(value, l), place[l].slope = std::sqrt(get(square, l));
  }

  void settle(Records &r, int limit) {
    for (int l = 0; l < L; l++) {
      Place &p = place[l];
      if (p.member < 0) continue;
      for (int k = 0; k < spec.rules && p.result == RUNNING && !limit; k++)
        if (fires(spec, k, spec.rule_kind[k] ? p.slope : p.loss)) p.result = FIRED, p.rule = k;
      if (p.result == RUNNING && limit) p.result = limit;
      const bool ended = p.result != RUNNING;
      if (!p.due && !ended) continue;
      for (int i = 0; i < n; i++) row[i] = get(y[i], l);
      if (p.due || !journal.has(p.member, p.t)) journal.write(r, p.member, p.t, p.loss, p.slope, row.data());
      p.due = false;
      if (ended) store(l);
    }
  }

  void store(int l) {
    Place &p = place[l];
    int64_t *whole = spec.whole + p.member * WHOLES;
    spec.real[p.member * REALS + REAL_T] = p.t, spec.real[p.member * REALS + REAL_LOSS] = p.loss;
    whole[WHOLE_ACCEPTED] = p.accepted, whole[WHOLE_RULE] = p.rule, whole[WHOLE_RESULT] = p.result;
    double *moments = update.moments + 2 * p.member * n;
    std::copy(row.begin(), row.end(), spec.y + p.member * n);
    for (size_t i = 0; i < m.size(); i++) moments[i] = get(m[i], l);
    for (size_t i = 0; i < v.size(); i++) moments[n + i] = get(v[i], l);
    p.member = -1;
  }

  // --- Steps

  // The slope of a random batch in place of that of the whole loss.
  void draw() {
    T *out = net.model->cotangent();
    const T *product = net.product;
    const int broad = net.model->columns, high = net.model->rows, area = net.loss.area, batch = update.batch;
    if (!update.inputs) std::fill(out, out + area, T{});
    for (int l = 0; l < L; l++) {
      const Place &p = place[l];
      if (p.member < 0) continue;
      const Key key = fold_in({update.keys[2 * p.member], update.keys[2 * p.member + 1]}, uint64_t(p.accepted));
      if (update.inputs) {
        draws.some(key, update.terms, batch);
        const double *x = update.inputs + p.member * update.inputs_step, *z = update.outputs + p.member * update.outputs_step;
        for (int b = 0; b < batch; b++) {
          for (int i = 0; i < broad; i++) put(inputs[i * batch + b], l, x[i * update.terms + draws.chosen[b]]);
          for (int i = 0; i < high; i++) put(outputs[i * batch + b], l, z[i * update.terms + draws.chosen[b]]);
        }
      } else if (update.places) {
        draws.some(key, update.terms, batch);
        const int64_t *where = update.places + p.member * update.places_step;
        const double *seen = update.observed + p.member * update.observed_step;
        for (int64_t k : draws.chosen) put(out[where[k]], l, seen[k] - get(product[where[k]], l));
      } else {
        draws.seen(key, p.seen, batch);
        for (int64_t i : draws.chosen) put(out[i], l, get(net.loss.target[i], l) - get(product[i], l));
      }
    }
    if (update.inputs) {
      Array<double> &room = net.loss.room;
      multiply(blas, room, high, broad, batch, product, broad, 1, inputs.data(), batch, 1, fitted.data());
      for (size_t i = 0; i < fitted.size(); i++) fitted[i] = (outputs[i] - fitted[i]) / double(batch);
      multiply(blas, room, high, batch, broad, fitted.data(), batch, 1, inputs.data(), 1, batch, out);
    }
    net.model->backward(y.data(), f.data());
    if (net.penalised)
      for (int i = 0; i < n; i++) f[i] -= share * net.l2 * y[i];
  }

  void step() {
    if (update.batch) draw();
    Numbers<T> now = numbers;
    for (int l = 0; l < L; l++) {
      const Place &p = place[l];
      now.taken[l] = p.member < 0 ? 0 : p.accepted;
      if (p.member < 0 || !update.marks) continue;
      const int64_t *mark = update.mark + p.member * update.mark_step;
      int passed = 0;
      for (int k = 0; k < update.marks; k++) passed += mark[k] <= p.accepted;
      const double factor = update.factor[p.member * update.factor_step];
      put(now.rate, l, get(now.rate, l) * std::pow(factor, double(passed)));
    }
    rule.move(update, now, n, f.data(), y.data(), m.data(), v.data(), new_y.data(), new_m.data(), new_v.data());
    T sum{};  // NaN where a weight is not finite
    for (int i = 0; i < n; i++) sum += new_y[i] * 0.0;
    bool take[L], whole = true;
    for (int l = 0; l < L; l++) {
      take[l] = place[l].member >= 0 && get(sum, l) == 0;
      whole = whole && take[l];
      if (place[l].member >= 0) judge(place[l], take[l]);
    }
    auto keep = [&](Array<T> &old, Array<T> &fresh) {
      if (whole) return old.swap(fresh);
      for (int l = 0; l < L; l++)
        if (take[l])
          for (size_t i = 0; i < old.size(); i++) put(old[i], l, get(fresh[i], l));
    };
    keep(y, new_y), keep(m, new_m), keep(v, new_v);
  }

  // Moves the clock of a network on; a step that leaves the finite numbers is not taken.
  void judge(Place &p, bool take) {
    const double t = p.t + 1;
    const bool hit = p.cursor < spec.listed && t == spec.times[p.cursor];
    p.accepted += take;
    p.due = take && (hit || (spec.every > 0 && std::fmod(t, double(spec.every)) == 0));
    if (take) p.t = t, p.cursor += hit;
    if (!take) p.result = DIVERGED;
    else if (t >= spec.horizon) p.result = COMPLETED;
    else if (p.accepted >= spec.max_steps) p.result = STEP_LIMIT;
  }

  // --- What Python calls

  int advance(Records *records, double seconds) override {
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    for (int64_t count = 1;; count++) {
      if (*spec.stop) return STATUS_STOPPED;
      if (!Journal::room(*records, L)) return STATUS_FULL;
      if ((spec.wide || count % 8 == 0) && Clock::now() > until) return pause();
      if (!fill()) return STATUS_DONE;
      evaluate(false);
      settle(*records, 0);
      step();
    }
  }

  // Says how far all have come.
  int pause() {
    for (const Place &p : place)
      if (p.member >= 0) {
        spec.real[p.member * REALS + REAL_T] = p.t;
        spec.whole[p.member * WHOLES + WHOLE_ACCEPTED] = p.accepted;
      }
    return STATUS_WORKING;
  }

  int end(Records *records, int result) override {
    for (;;) {
      if (!Journal::room(*records, L)) return STATUS_FULL;
      if (!fill()) return STATUS_DONE;
      evaluate(true);
      settle(*records, result);
    }
  }
};

}  // namespace engine
