// Members of an ensemble moved from start to end, as many side by side as there are lanes.
#pragma once
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include "steps.h"

namespace engine {

// One network that waits: where it stands, and its weights, slope and direction of largest curvature.
struct Member {
  Control control;
  std::vector<double> y, f, direction;
};

template <class T> struct Worker : AbstractWorker {
  static constexpr int L = lanes_of<T>;
  static constexpr int PATCH = 16;  // rounds before other networks may have the lanes

  const Spec &spec;
  Blas blas;
  Judge judge;
  std::atomic<int64_t> &next;
  int n;
  Steps<T> steps;
  std::unique_ptr<Steps<T>> solo;  // for the exponential method, whose lanes all hold one network
  typedef std::unique_ptr<Member> Waiting;
  std::deque<Waiting> pools[MODES];
  std::deque<Waiting> ended;       // with records still to be written
  Waiting lane[L];
  bool broadcast = false;
  Mode mode = EXPLICIT;
  int rounds = 0;

  Worker(const Spec &s, std::atomic<int64_t> &counter)
      : spec(s), blas{(decltype(blas.dgemm))s.dgemm, s.least}, judge(&s),
        next(counter), n(judge.size), steps(s, blas) {}

  // --- Lanes

  static void read(Steps<T> &to, Member &m, int at) {
    for (int i = 0; i < to.n; i++) {
      put(to.y[i], at, m.y[i]), put(to.f[i], at, m.f[i]), put(to.direction[i], at, m.direction[i]);
    }
  }
  static void write(Steps<T> &from, Member &m, int at) {
    for (int i = 0; i < from.n; i++) {
      m.y[i] = get(from.y[i], at), m.f[i] = get(from.f[i], at), m.direction[i] = get(from.direction[i], at);
    }
  }

  void enter(int at, Waiting m) {
    if (!steps.net.shared())
      steps.net.take(m->control.member, at);
    else if (!broadcast)
      steps.net.take(0, -1), broadcast = true;
    read(steps, *m, at);
    lane[at] = std::move(m);
  }

  void leave(int at) {
    write(steps, *lane[at], at);
    file(std::move(lane[at]));
  }

  // Puts a network where it belongs.
  void file(Waiting m) {
    if (m->control.result != RUNNING)
      ended.push_back(std::move(m));
    else
      pools[judge.plan(m->control).mode].push_back(std::move(m));
  }

  int live() const {
    int count = 0;
    for (int l = 0; l < L; l++) count += lane[l] != nullptr;
    return count;
  }

  // --- The beginning: as many new members as there are lanes, which must be empty

  bool begin() {
    const int64_t from = next.fetch_add(L);
    if (from >= spec.members) return false;
    const int count = int(std::min<int64_t>(L, spec.members - from));
    for (int l = 0; l < count; l++) {
      Waiting m(new Member());
      Control &c = m->control;
      std::memset(&c, 0, sizeof c);
      c.member = from + l;
      judge.tolerate(c);
      c.t = spec.real[c.member * REALS + REAL_T];
      c.cursor = spec.first;
      m->y.assign(spec.y + c.member * n, spec.y + (c.member + 1) * n);
      m->f.assign(n, 0), m->direction.assign(n, 0);
      enter(l, std::move(m));
    }
    T value = steps.net.linearize(steps.y.data(), steps.f.data());
    steps.net.jacobian(steps.y.data(), steps.f.data(), steps.slope.data());
    for (int l = 0; l < count; l++) {
      Control &c = lane[l]->control;
      double speed = 0, bend = 0, size = 0;
      for (int layer = 0; layer < spec.depth; layer++) {
        double sum = 0;
        for (int i = steps.net.begin[layer]; i < steps.net.begin[layer + 1]; i++) {
          const double y = get(steps.y[i], l), f = get(steps.f[i], l), j = get(steps.slope[i], l);
          sum += y * y, speed += f * f, bend += j * j;
        }
        c.layers[layer] = sum;
        size += sum;
      }
      speed = std::sqrt(speed);
      judge.open(c, speed, std::sqrt(bend), std::sqrt(size), get(value, l));
      const double unit = 1 / std::max(speed, judge.tiny);
      for (int i = 0; i < n; i++) put(steps.direction[i], l, get(steps.f[i], l) * unit);
      if (spec.resumed) recall(c, l);
    }
    renew();
    for (int l = 0; l < count; l++) {
      write(steps, *lane[l], l);
      if (spec.opens) opened.push_back(l);
    }
    return true;
  }
  std::vector<int> opened;  // lanes whose first state is still to be recorded

  void recall(Control &c, int l) {
    const double *real = spec.real + c.member * REALS;
    const int64_t *whole = spec.whole + c.member * WHOLES;
    c.h = real[REAL_H], c.rho = real[REAL_RHO], c.error = real[REAL_ERROR];
    c.age = int(whole[WHOLE_AGE]), c.stiff = int(whole[WHOLE_STIFF]), c.strikes = int(whole[WHOLE_STRIKES]);
    c.accepted = whole[WHOLE_ACCEPTED], c.rejected = whole[WHOLE_REJECTED];
    c.stabilised = whole[WHOLE_STABILISED], c.evaluations = whole[WHOLE_EVALUATIONS];
    for (int i = 0; i < n; i++) put(steps.direction[i], l, spec.direction[c.member * n + i]);
  }

  // --- The spectral radius, by power iteration from the last direction, for the lanes that are due; whether any was

  bool renew() {
    bool due[L], any = false;
    for (int l = 0; l < L; l++) {
      due[l] = lane[l] && lane[l]->control.result == RUNNING && lane[l]->control.age >= spec.law.refresh;
      any = any || due[l];
    }
    if (any) renew(steps, due);
    return any;
  }

  void renew(Steps<T> &s, const bool *due) {
    T *v = s.a.data(), *w = s.b.data();
    s.net.linearize(s.y.data(), s.slope.data());
    for (int i = 0; i < n; i++) v[i] = s.direction[i];
    double bound[L];
    for (int iteration = 0; iteration < 3; iteration++) {
      s.net.jacobian(s.y.data(), v, w);
      T quotient{}, square{}, rest{};
      for (int i = 0; i < n; i++) quotient += v[i] * w[i], square += w[i] * w[i];
      for (int i = 0; i < n; i++) {
        const T gap = w[i] - quotient * v[i];
        rest += gap * gap;
      }
      T scale{};
      for (int l = 0; l < L; l++) {
        const double size = std::sqrt(get(square, l));
        bound[l] = std::fabs(get(quotient, l)) + std::sqrt(get(rest, l));
        put(scale, l, size > 0 ? 1 / size : 0.0);
      }
      for (int i = 0; i < n; i++) {
        const T fresh = w[i] * scale;
        for (int l = 0; l < L; l++)
          if (get(scale, l) > 0) put(v[i], l, get(fresh, l));
      }
    }
    for (int l = 0; l < L; l++)
      if (due[l]) {
        Control &c = lane[l]->control;
        c.rho = spec.law.margin * bound[l];
        c.age = 0;
        c.evaluations += 7;
        for (int i = 0; i < n; i++) put(s.direction[i], l, get(v[i], l));
      }
  }

  // --- Records

  static bool room(const Records &r, int64_t rows) { return r.filled + rows <= r.room; }

  void record(Records &r, const Control &c, const double *state) {
    const int64_t row = r.filled++;
    r.member[row] = c.member, r.time[row] = c.t, r.loss[row] = c.loss, r.slope[row] = c.before;
    if (spec.keeps) std::copy(state, state + n, r.states + row * n);
    written[c.member] = c.t;
  }
  std::vector<double> written;  // time of the last record of each member, NaN before the first

  void remember(int64_t member) {
    if (int64_t(written.size()) <= member) written.resize(member + 1, NAN);
  }

  // Writes what ended members still have to record, and their last states; false where there is no room.
  bool flush(Records &r) {
    while (!ended.empty()) {
      Member &m = *ended.front();
      Control &c = m.control;
      remember(c.member);
      if (c.result == STEADY)  // it does not move any more
        for (; c.cursor < spec.listed; c.cursor++) {
          if (!room(r, 1)) return false;
          c.t = spec.times[c.cursor];
          record(r, c, m.y.data());
        }
      if (!(written[c.member] == c.t)) {
        if (!room(r, 1)) return false;
        record(r, c, m.y.data());
      }
      store(m);
      ended.pop_front();
    }
    return true;
  }

  void store(const Member &m) {
    const Control &c = m.control;
    double *real = spec.real + c.member * REALS;
    int64_t *whole = spec.whole + c.member * WHOLES;
    real[REAL_T] = c.t, real[REAL_H] = c.h, real[REAL_RHO] = c.rho, real[REAL_ERROR] = c.error, real[REAL_LOSS] = c.loss;
    whole[WHOLE_AGE] = c.age, whole[WHOLE_STIFF] = c.stiff, whole[WHOLE_STRIKES] = c.strikes;
    whole[WHOLE_ACCEPTED] = c.accepted, whole[WHOLE_REJECTED] = c.rejected, whole[WHOLE_STABILISED] = c.stabilised;
    whole[WHOLE_EVALUATIONS] = c.evaluations, whole[WHOLE_RULE] = c.rule;
    std::copy(m.y.begin(), m.y.end(), spec.y + c.member * n);
    std::copy(m.direction.begin(), m.direction.end(), spec.direction + c.member * n);
    whole[WHOLE_RESULT] = c.result;
  }

  // --- Steps

  // One step of all lanes; false where it was broken off.
  bool attempt(Steps<T> &s, Mode how, Records &r) {
    Trial trials[L];
    bool alive[L];
    double h[L], rho[L];
    T length{};
    for (int l = 0; l < L; l++) {
      alive[l] = lane[l] != nullptr;
      h[l] = rho[l] = 0;
      if (!alive[l]) continue;
      trials[l] = judge.plan(lane[l]->control);
      h[l] = trials[l].h, rho[l] = lane[l]->control.rho;
      put(length, l, h[l]);
    }
    if (how == EXPLICIT && !s.pair(length)) return false;
    if (how == STABILISED && !s.stabilised(h, rho, alive)) return false;
    if (how == EXPONENTIAL && !s.exponential(h[0])) return false;

    T layers[MOST_DEPTH], errors[MOST_DEPTH], slope{}, along{};
    for (int layer = 0; layer < spec.depth; layer++) {
      T p{}, q{};
      for (int i = s.net.begin[layer]; i < s.net.begin[layer + 1]; i++) {
        p += s.next[i] * s.next[i], q += s.error[i] * s.error[i], slope += s.slope[i] * s.slope[i];
        along += (s.f[i] + s.slope[i]) * (s.next[i] - s.y[i]);
      }
      layers[layer] = p, errors[layer] = q;
    }
    bool taken[L], whole = true;
    for (int l = 0; l < L; l++) {
      taken[l] = false;
      if (!alive[l]) { whole = false; continue; }
      Measured m;
      for (int layer = 0; layer < spec.depth; layer++)
        m.layers[layer] = get(layers[layer], l), m.errors[layer] = get(errors[layer], l);
      m.slope = get(slope, l), m.along = get(along, l), m.value = get(s.value, l), m.evaluations = s.evaluations[l];
      bool due;
      taken[l] = judge.judge(lane[l]->control, trials[l], m, due);
      whole = whole && taken[l];
      if (due) {
        remember(lane[l]->control.member);
        if (spec.keeps)
          for (int i = 0; i < n; i++) lane[l]->y[i] = get(s.next[i], l);
        record(r, lane[l]->control, lane[l]->y.data());
      }
    }
    if (whole) {
      s.y.swap(s.next), s.f.swap(s.slope);
    } else
      for (int l = 0; l < L; l++)
        if (taken[l])
          for (int i = 0; i < n; i++) put(s.y[i], l, get(s.next[i], l)), put(s.f[i], l, get(s.slope[i], l));
    return true;
  }

  // The networks that want the exponential method, one after the other; false where there is no room or no time.
  bool alone(Records &r, const std::chrono::steady_clock::time_point &until) {
    while (!pools[EXPONENTIAL].empty()) {
      if (!solo) solo.reset(new Steps<T>(spec, blas));
      Waiting kept[L];
      for (int l = 0; l < L; l++) kept[l] = std::move(lane[l]);
      Waiting m = std::move(pools[EXPONENTIAL].front());
      pools[EXPONENTIAL].pop_front();
      solo->net.take(m->control.member, -1);
      for (int l = 0; l < L; l++) read(*solo, *m, l);
      lane[0] = std::move(m);
      bool going = true;
      while (going && lane[0]->control.result == RUNNING && judge.plan(lane[0]->control).mode == EXPONENTIAL) {
        if (!room(r, 1) || std::chrono::steady_clock::now() > until || steps.stopped()) { going = false; break; }
        if (lane[0]->control.age >= spec.law.refresh) {
          const bool due[L] = {true};
          renew(*solo, due);
          continue;
        }
        going = attempt(*solo, EXPONENTIAL, r);
        for (int i = 0; i < n; i++) {
          solo->y[i] = all<T>(get(solo->y[i], 0)), solo->f[i] = all<T>(get(solo->f[i], 0));
          solo->direction[i] = all<T>(get(solo->direction[i], 0));
        }
      }
      write(*solo, *lane[0], 0);
      file(std::move(lane[0]));
      for (int l = 0; l < L; l++) lane[l] = std::move(kept[l]);
      if (!going) return false;
    }
    return true;
  }

  void fill() {
    if (mode == STABILISED && live() == 0)
      std::sort(pools[mode].begin(), pools[mode].end(), [](const Waiting &a, const Waiting &b) {
        const double left = a->control.h * a->control.rho, right = b->control.h * b->control.rho;
        return left != right ? left < right : a->control.member < b->control.member;
      });
    for (int l = 0; l < L && !pools[mode].empty(); l++)
      if (!lane[l]) {
        Waiting m = std::move(pools[mode].front());
        pools[mode].pop_front();
        enter(l, std::move(m));
      }
  }

  // Lets go who ended or wants another integrator; whether there was one.
  bool part() {
    bool any = false;
    for (int l = 0; l < L; l++)
      if (lane[l] && (lane[l]->control.result != RUNNING || judge.plan(lane[l]->control).mode != mode))
        leave(l), any = true;
    return any;
  }

  void clear() {
    for (int l = 0; l < L; l++)
      if (lane[l]) leave(l);
    rounds = 0;
  }

  bool open(Records &r) {
    while (!opened.empty()) {
      if (!room(r, 1)) return false;
      const int l = opened.back();
      remember(lane[l]->control.member);
      record(r, lane[l]->control, lane[l]->y.data());
      if (spec.listed > 0) lane[l]->control.cursor++;  // the first listed time is that of the start
      opened.pop_back();
    }
    return true;
  }

  // Says how far all have come, and lets the caller look at the clock.
  int pause() {
    auto publish = [&](const Waiting &m) {
      if (!m) return;
      spec.real[m->control.member * REALS + REAL_T] = m->control.t;
      spec.whole[m->control.member * WHOLES + WHOLE_ACCEPTED] = m->control.accepted;
    };
    for (auto &m : lane) publish(m);
    for (auto &pool : pools)
      for (auto &m : pool) publish(m);
    return STATUS_WORKING;
  }

  int advance(Records *records, double seconds) override {
    Records &r = *records;
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                              std::chrono::duration<double>(seconds));
    for (int64_t count = 0;; count++) {
      if (steps.stopped()) return STATUS_STOPPED;
      if (!opened.empty()) {
        if (!open(r)) return STATUS_FULL;
        clear();
      }
      if (!flush(r)) return STATUS_FULL;
      if (!room(r, L)) return STATUS_FULL;
      if ((count & 7) == 7 && std::chrono::steady_clock::now() > until) return pause();
      if (!alone(r, until)) {
        if (steps.stopped()) return STATUS_STOPPED;
        return room(r, L) ? pause() : STATUS_FULL;
      }

      // Who moves: networks that are stiff as soon as they fill the lanes, so that few wait.
      fill();
      const Mode other = mode == EXPLICIT ? STABILISED : EXPLICIT;
      const int busy = live();
      const bool thin = 2 * busy <= L && int(pools[other].size()) > busy && rounds >= PATCH;
      if (busy == 0 || thin) {
        const bool fresh = busy == 0 && pools[other].empty();
        if (!fresh) {
          clear();
          mode = other;
          continue;
        }
        mode = EXPLICIT;
        more = begin();
        if (!more && ended.empty()) return STATUS_DONE;
        if (!spec.opens) clear();
        continue;
      }
      if (mode == EXPLICIT && busy < L && pools[EXPLICIT].empty() && more && 2 * busy <= L && pools[STABILISED].size() < 4 * L) {
        clear();  // new members fill the lanes
        more = begin();
        if (more && !spec.opens) clear();
        continue;
      }
      if (renew() && part()) continue;  // with another radius, another integrator
      rounds++;
      if (attempt(steps, mode, r)) part();
    }
  }
  bool more = true;

  // Ends all members that run or have not begun, with a result for the limit that was reached.
  int end(Records *records, int result) override {
    Records &r = *records;
    for (;;) {
      if (!opened.empty()) {
        if (!open(r)) return STATUS_FULL;
      }
      for (int l = 0; l < L; l++)
        if (lane[l] && lane[l]->control.result == RUNNING) lane[l]->control.result = result;
      clear();
      for (auto &pool : pools)
        for (; !pool.empty(); pool.pop_front()) {
          pool.front()->control.result = result;
          ended.push_back(std::move(pool.front()));
        }
      if (!flush(r)) return STATUS_FULL;
      if (!begin()) return STATUS_DONE;
    }
  }
};

}  // namespace engine
