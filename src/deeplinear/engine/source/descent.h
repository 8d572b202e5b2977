// Discrete updates of the members of an ensemble, as many side by side as there are lanes.
#pragma once
#include <atomic>
#include <chrono>
#include "law.h"
#include "network.h"

namespace engine {

enum { UPDATE_NONE, UPDATE_DESCENT, UPDATE_MOMENTUM, UPDATE_NESTEROV, UPDATE_ADAM, UPDATE_RMSPROP, UPDATE_ADAGRAD };

// Arrays of the size of the weights that an update remembers.
inline int slots_of(int update) {
  return update == UPDATE_DESCENT ? 0 : update == UPDATE_ADAM ? 2 : 1;
}

template <class T> struct Descent : AbstractWorker {
  static constexpr int L = lanes_of<T>;

  struct Lane {
    int64_t member = -1, cursor = 0, accepted = 0;
    double t = 0, written = NAN;
    int result = RUNNING, rule = 0;
    bool due = false;  // whether the present state is still to be recorded
    bool live() const { return member >= 0; }
  };

  const Spec &spec;
  Blas blas;
  Judge judge;
  std::atomic<int64_t> &next;
  Network<T> net;
  int n, slots;
  Array<T> y, f, fresh, inner, changed;
  Lane lane[L];
  T rates[4];
  bool broadcast = false, more = true;

  Descent(const Spec &s, std::atomic<int64_t> &counter)
      : spec(s), blas{(decltype(blas.dgemm))s.dgemm, s.least}, judge(&s), next(counter), net(s, blas), n(net.size),
        slots(slots_of(s.update)) {
    for (auto *array : {&y, &f, &fresh}) array->assign(n, T{});
    for (auto *array : {&inner, &changed}) array->assign(size_t(n) * slots, T{});
    for (auto &rate : rates) rate = all<T>(0.5);
  }

  // Takes the next member into a lane; false where none is left.
  bool enter(int at) {
    const int64_t member = more ? next.fetch_add(1) : spec.members;
    if (member >= spec.members) return more = false;
    Lane &l = lane[at] = Lane();
    l.member = member;
    if (!net.shared())
      net.take(member, at);
    else if (!broadcast)
      net.take(0, -1), broadcast = true;
    for (int i = 0; i < 4; i++) put(rates[i], at, spec.rates[member * spec.rates_step + i]);
    bool finite = true;
    for (int i = 0; i < n; i++) {
      const double x = spec.y[member * n + i];
      put(y[i], at, x), finite = finite && std::isfinite(x);
    }
    for (int i = 0; i < n * slots; i++) put(inner[i], at, spec.inner[member * n * slots + i]);
    l.t = spec.real[member * REALS + REAL_T];
    l.accepted = spec.resumed ? spec.whole[member * WHOLES + WHOLE_ACCEPTED] : 0;
    l.cursor = spec.first, l.due = spec.opens;
    if (spec.opens && spec.listed > 0) l.cursor++;  // the first listed time is that of the start
    l.result = !finite ? DIVERGED : l.t >= spec.horizon ? COMPLETED : RUNNING;
    return true;
  }

  void leave(int at) {
    Lane &l = lane[at];
    publish(l);
    spec.whole[l.member * WHOLES + WHOLE_RESULT] = l.result, spec.whole[l.member * WHOLES + WHOLE_RULE] = l.rule;
    for (int i = 0; i < n; i++) spec.y[l.member * n + i] = get(y[i], at);
    for (int i = 0; i < n * slots; i++) spec.inner[l.member * n * slots + i] = get(inner[i], at);
    l = Lane();
  }

  void publish(const Lane &l) const {
    spec.real[l.member * REALS + REAL_T] = l.t, spec.whole[l.member * WHOLES + WHOLE_ACCEPTED] = l.accepted;
  }

  void record(Records &r, int at, double loss, double speed) {
    Lane &l = lane[at];
    const int64_t row = r.filled++;
    r.member[row] = l.member, r.time[row] = l.t, r.loss[row] = loss, r.slope[row] = speed;
    if (spec.keeps)
      for (int i = 0; i < n; i++) r.states[row * n + i] = get(y[i], at);
    l.due = false, l.written = l.t;
  }

  // Loss and slope of the present states: records them where it is due, ends members, and says whether one is left.
  bool look(Records &r) {
    const T value = net.slope(y.data(), f.data(), true);
    T square{};
    for (int i = 0; i < n; i++) square += f[i] * f[i];
    bool left = false;
    for (int at = 0; at < L; at++) {
      Lane &l = lane[at];
      if (!l.live()) continue;
      const double loss = get(value, at), speed = std::sqrt(get(square, at));
      for (int k = 0; k < spec.rules && l.result == RUNNING; k++)
        if (judge.fires(k, judge.ruled(k, loss, speed))) l.result = FIRED, l.rule = k;
      if (l.due || (l.result != RUNNING && !(l.written == l.t))) record(r, at, loss, speed);
      if (l.result != RUNNING) leave(at);
      left = left || l.live();
    }
    return left;
  }

  static T root(const T &x) {
    T out;
    for (int at = 0; at < L; at++) put(out, at, std::sqrt(get(x, at)));
    return out;
  }

  // New weights and memory from the slope f, which is minus the gradient.
  void move() {
    const T lr = rates[0], p = rates[1], q = rates[2], eps = rates[3];
    T *a = changed.data(), *b = a + (slots > 1 ? n : 0);
    const T *a0 = inner.data(), *b0 = a0 + (slots > 1 ? n : 0);
    T first = p, second = q;
    for (int at = 0; at < L; at++) {
      const double count = double(lane[at].accepted + 1);
      if (spec.update == UPDATE_ADAM)
        put(first, at, 1 - std::pow(get(p, at), count)), put(second, at, 1 - std::pow(get(q, at), count));
      if (spec.update == UPDATE_MOMENTUM || spec.update == UPDATE_NESTEROV)
        put(first, at, lane[at].accepted ? 1 - get(q, at) : 1.0);
    }
    for (int i = 0; i < n; i++) {
      const T g = -f[i];
      T along = g;
      switch (spec.update) {
        case UPDATE_MOMENTUM:
        case UPDATE_NESTEROV:
          a[i] = p * a0[i] + first * g;
          along = spec.update == UPDATE_NESTEROV ? g + p * a[i] : a[i];
          break;
        case UPDATE_ADAM:
          a[i] = p * a0[i] + (1.0 - p) * g, b[i] = q * b0[i] + (1.0 - q) * (g * g);
          along = (a[i] / first) / (root(b[i] / second) + eps);
          break;
        case UPDATE_RMSPROP:
          a[i] = p * a0[i] + (1.0 - p) * (g * g);
          along = g / (root(a[i]) + eps);
          break;
        case UPDATE_ADAGRAD:
          a[i] = a0[i] + g * g;
          along = g / (root(a[i]) + eps);
          break;
      }
      fresh[i] = y[i] - lr * along;
    }
  }

  // One step of all members; one that leaves the finite numbers is not taken.
  void step() {
    move();
    bool whole = true, taken[L];
    for (int at = 0; at < L; at++) {
      bool finite = lane[at].live();
      for (int i = 0; i < n && finite; i++) finite = std::isfinite(get(fresh[i], at));
      taken[at] = finite, whole = whole && finite;
      Lane &l = lane[at];
      if (!l.live()) continue;
      if (!finite) {
        l.result = DIVERGED;
        continue;
      }
      l.t += 1, l.accepted++;
      const bool hit = l.cursor < spec.listed && l.t == spec.times[l.cursor];
      l.cursor += hit;
      l.due = hit || (spec.every > 0 && std::fmod(l.t, double(spec.every)) == 0);
      if (l.t >= spec.horizon) l.result = COMPLETED;
      else if (l.accepted >= spec.max_steps) l.result = STEP_LIMIT;
    }
    if (whole)
      y.swap(fresh), inner.swap(changed);
    else
      for (int at = 0; at < L; at++)
        if (taken[at]) {
          for (int i = 0; i < n; i++) put(y[i], at, get(fresh[i], at));
          for (int i = 0; i < n * slots; i++) put(inner[i], at, get(changed[i], at));
        }
  }

  bool fill() {
    bool any = false;
    for (int at = 0; at < L; at++) any = (lane[at].live() || enter(at)) || any;
    return any;
  }

  int advance(Records *records, double seconds) override {
    Records &r = *records;
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                              std::chrono::duration<double>(seconds));
    for (int64_t count = 1;; count++) {
      if (*spec.stop != 0) return STATUS_STOPPED;
      if (r.filled + L > r.room) return STATUS_FULL;
      if ((count & 15) == 0 && std::chrono::steady_clock::now() > until) {
        for (auto &l : lane)
          if (l.live()) publish(l);
        return STATUS_WORKING;
      }
      if (!fill()) return STATUS_DONE;
      if (look(r)) step();
    }
  }

  // Ends all members that run or have not begun, with a result for the limit that was reached.
  int end(Records *records, int result) override {
    Records &r = *records;
    for (;;) {
      if (r.filled + L > r.room) return STATUS_FULL;
      if (!fill()) return STATUS_DONE;
      for (auto &l : lane)
        if (l.live() && l.result == RUNNING) l.result = result;
      look(r);
    }
  }
};

}  // namespace engine
