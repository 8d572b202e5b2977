// One step of each integrator, of several networks side by side.
#pragma once
#include <utility>
#include "law.h"
#include "network.h"
#include "symmetric.h"

namespace engine {

// Sum of N weighted columns that lie `apart` numbers apart, added to `base` (nothing if null).
template <int N, class T>
inline void combine(int size, const T *base, const T *const *columns, const T *weights, T *out) {
  T w[N];
  const T *k[N];
  for (int q = 0; q < N; q++) w[q] = weights[q], k[q] = columns[q];
  for (int i = 0; i < size; i++) {
    T x = base ? base[i] : T{};
    for (int q = 0; q < N; q++) x += w[q] * k[q][i];
    out[i] = x;
  }
}

template <class T, int... N>
inline void combined(std::integer_sequence<int, N...>, int count, int size, const T *base, const T *const *columns,
                     const T *weights, T *out) {
  typedef void (*Kernel)(int, const T *, const T *const *, const T *, T *);
  static const Kernel kernels[] = {combine<N + 1, T>...};
  kernels[count - 1](size, base, columns, weights, out);
}

template <class T> struct Steps {
  const Spec &spec;
  const Blas &blas;
  Network<T> net;
  int n;
  Array<T> y, f, direction;       // the networks now
  Array<T> next, slope, error;    // after the step
  Array<T> k, point, a, b, c, d;  // slopes of stages, and room
  Array<double> dense, values;
  T value;                        // loss after the step
  int64_t evaluations[lanes_of<T>];

  Steps(const Spec &s, const Blas &bl) : spec(s), blas(bl), net(s, bl), n(net.size) {
    for (auto *array : {&y, &f, &direction, &next, &slope, &error, &point}) array->assign(n, T{});
    k.resize(size_t(n) * std::max(spec.pair.stages, 4));
    for (auto *array : {&a, &b, &c, &d}) array->assign(n, T{});
  }

  bool stopped() const { return *spec.stop != 0; }

  // The explicit pair: the last stage is the new state and its slope the next first.
  bool pair(const T &h) {
    const int stages = spec.pair.stages;
    const T *columns[16];
    T weights[16];
    for (int i = 0; i < n; i++) k[i] = f[i];
    for (int s = 1; s < stages; s++) {
      int count = 0;
      for (int q = 0; q < s; q++)
        if (spec.pair.lower[s * stages + q] != 0)
          columns[count] = &k[size_t(q) * n], weights[count++] = h * spec.pair.lower[s * stages + q];
      T *at = s == stages - 1 ? next.data() : point.data();
      combined(std::make_integer_sequence<int, 14>(), count, n, y.data(), columns, weights, at);
      T *to = s == stages - 1 ? slope.data() : &k[size_t(s) * n];
      value = net.slope(at, to, s == stages - 1);
      if (stopped()) return false;
    }
    int count = 0;
    for (int q = 0; q < stages; q++)
      if (spec.pair.error[q] != 0)
        columns[count] = q == stages - 1 ? slope.data() : &k[size_t(q) * n], weights[count++] = h * spec.pair.error[q];
    combined(std::make_integer_sequence<int, 14>(), count, n, (const T *)nullptr, columns, weights, error.data());
    for (int lane = 0; lane < lanes_of<T>; lane++) evaluations[lane] = stages - 1;
    return true;
  }

  // The stabilised family: each lane has the stages its step needs. Who has fewer of the first kind begins later, who
  // has fewer of the last kind rests at the end, so that all lanes go through the same loops.
  bool stabilised(const double *h, const double *rho, const bool *live) {
    constexpr int L = lanes_of<T>;
    const Family &family = spec.family;
    int64_t stages[L], first[L], second[L], offset[L], early = 0, late = 0;
    const double *mixing[L];
    for (int lane = 0; lane < L; lane++) {
      int row = int(std::lower_bound(family.interval, family.interval + family.rows, h[lane] * rho[lane]) - family.interval);
      row = std::min(live[lane] ? row : 0, family.rows - 1);
      stages[lane] = family.stages[row], first[lane] = family.first[row], second[lane] = family.second[row];
      offset[lane] = family.offset[row], mixing[lane] = family.mixing + 4 * row;
      early = std::max(early, second[lane]), late = std::max(late, stages[lane] - second[lane]);
      evaluations[lane] = stages[lane] + 2;
    }
    T *old = a.data(), *now = b.data(), *kept = c.data(), *kept_slope = d.data(), *sum = next.data();
    T *mixed[2] = {&k[0], &k[n]}, *here = &k[2 * size_t(n)], step;
    for (int lane = 0; lane < L; lane++) put(step, lane, h[lane]);
    for (int i = 0; i < n; i++) old[i] = now[i] = kept[i] = kept_slope[i] = sum[i] = error[i] = T{};

    // Stage number[lane] from the two before it; numbers that are no stage of a lane have zero weights.
    auto update = [&](const int64_t *number, const T *g, bool forced) {
      T w[6] = {};
      for (int lane = 0; lane < L; lane++) {
        const bool inside = number[lane] >= 1 && number[lane] <= stages[lane];
        const double *from = family.weights + 6 * (offset[lane] + std::min(std::max(number[lane], int64_t(1)), stages[lane]));
        for (int j = 0; j < 6; j++) put(w[j], lane, inside ? from[j] : 0.0);
      }
      const T momentum = w[0], go = w[1] * step, weight = w[2], estimate = w[3], push0 = w[4], push1 = w[5];
      for (int i = 0; i < n; i++) {
        T s = g[i];
        if (forced) s += mixed[0][i] * push0 + mixed[1][i] * push1;
        const T fresh = now[i] + momentum * (now[i] - old[i]) + go * s;
        old[i] = fresh;
        sum[i] += weight * fresh, error[i] += estimate * fresh;
      }
      std::swap(old, now);
    };
    auto field = [&](const T *shift, T *out) {
      for (int i = 0; i < n; i++) point[i] = y[i] + shift[i];
      net.slope(point.data(), out, false);
      return !stopped();
    };
    int64_t number[L];
    auto each = [&](auto of) { for (int lane = 0; lane < L; lane++) number[lane] = of(lane); };

    each([&](int lane) { return early > second[lane] ? 0 : 1; });
    update(number, f.data(), false);
    for (int64_t j = 2; j <= early; j++) {
      if (!field(now, here)) return false;
      each([&](int lane) { return j - (early - second[lane]); });
      bool begins = false, keeps = false;
      T start{}, keep{};
      for (int lane = 0; lane < L; lane++) {
        if (number[lane] == 1) put(start, lane, 1.0), begins = true;
        if (number[lane] - 1 == first[lane]) put(keep, lane, 1.0), keeps = true;
      }
      if (begins)
        for (int i = 0; i < n; i++)
          for (int lane = 0; lane < L; lane++)
            if (number[lane] == 1) put(here[i], lane, get(f[i], lane));
      if (keeps)
        for (int i = 0; i < n; i++)
          for (int lane = 0; lane < L; lane++)
            if (number[lane] - 1 == first[lane])
              put(kept[i], lane, get(now[i], lane)), put(kept_slope[i], lane, get(here[i], lane));
      update(number, here, false);
    }
    // Two evaluations whose linear parts cancel, at combinations of the stages `first` and `second`.
    if (!field(now, here)) return false;
    T m[4];
    for (int j = 0; j < 4; j++)
      for (int lane = 0; lane < L; lane++) put(m[j], lane, mixing[lane][j]);
    T *shift = slope.data();
    for (int q = 0; q < 2; q++) {
      for (int i = 0; i < n; i++) shift[i] = m[2 * q] * kept[i] + m[2 * q + 1] * now[i];
      if (!field(shift, mixed[q])) return false;
    }
    for (int q = 0; q < 2; q++)
      for (int i = 0; i < n; i++)
        mixed[q][i] = mixed[q][i] - f[i] - m[2 * q] * (kept_slope[i] - f[i]) - m[2 * q + 1] * (here[i] - f[i]);
    each([&](int lane) { return second[lane] + 1; });
    update(number, here, true);
    for (int64_t j = 2; j <= late; j++) {
      if (!field(now, here)) return false;
      each([&](int lane) { return second[lane] + j; });
      update(number, here, true);
    }
    for (int i = 0; i < n; i++) next[i] += y[i];
    value = net.slope(next.data(), slope.data(), true);
    return !stopped();
  }

  // phi_k(z), k >= 1: from expm1 by recursion, by its series near zero.
  static double phi(int order, double z) {
    double factorial = 1;
    if (std::fabs(z) <= 1) {
      double sum = 0;
      for (int i = 2; i <= order + 20; i++) factorial *= i;
      for (int term = 20; term >= 0; term--) {
        sum = sum * z + 1 / factorial;
        factorial /= term + order;
      }
      return sum;
    }
    double x = std::expm1(z) / z;
    for (int j = 1; j < order; j++) {
      x = (x - 1 / factorial) / z;
      factorial *= j + 1;
    }
    return x;
  }

  // The exponential method, for the one network that all lanes hold.
  bool exponential(double h) {
    constexpr int L = lanes_of<T>;
    dense.resize(size_t(n) * n), values.resize(n);
    net.linearize(y.data(), slope.data());
    T *v = point.data(), *jv = a.data();
    for (int i = 0; i < n; i++) v[i] = T{};
    for (int from = 0; from < n; from += L) {
      for (int lane = 0; lane < L && from + lane < n; lane++) put(v[from + lane], lane, 1.0);
      net.jacobian(y.data(), v, jv);
      if (stopped()) return false;
      for (int lane = 0; lane < L && from + lane < n; lane++) {
        put(v[from + lane], lane, 0.0);
        for (int i = 0; i < n; i++) dense[size_t(from + lane) * n + i] = get(jv[i], lane);
      }
    }
    Array<double> matrix(dense), vectors(size_t(n) * n);
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) vectors[size_t(i) * n + j] = 0.5 * (dense[size_t(i) * n + j] + dense[size_t(j) * n + i]);
    if (!decompose(n, vectors.data(), values.data())) {  // the step is refused
      for (int i = 0; i < n; i++) next[i] = y[i], slope[i] = f[i], error[i] = all<T>(INFINITY);
      value = all<T>(INFINITY);
      for (int lane = 0; lane < L; lane++) evaluations[lane] = 2 * n + 3;
      return true;
    }
    // Weights that the linear flow from f cannot reach stay as they are, to the last bit.
    std::vector<char> moves(n), more(n);
    for (int i = 0; i < n; i++) moves[i] = get(f[i], 0) != 0;
    for (bool wider = true; wider;) {
      more = moves;
      for (int i = 0; i < n; i++)
        for (int j = 0; j < n && !more[i]; j++) more[i] = moves[j] && matrix[size_t(j) * n + i] != 0;
      wider = more != moves;
      moves = more;
    }
    Array<double> part(n), weights(n);
    auto apply = [&](const Array<double> &x, Array<double> &out) {  // column k of the vectors is row k in memory
      for (int q = 0; q < n; q++) {
        double s = 0;
        for (int i = 0; i < n; i++) s += vectors[size_t(q) * n + i] * x[i];
        part[q] = weights[q] * s;
      }
      for (int i = 0; i < n; i++) out[i] = 0;
      for (int q = 0; q < n; q++)
        for (int i = 0; i < n; i++) out[i] += vectors[size_t(q) * n + i] * part[q];
      for (int i = 0; i < n; i++)
        if (!moves[i] && x[i] == 0) out[i] = 0;
    };
    Array<double> start(n), slope0(n), move(n), inside(n), ending(n), bend(n), extra(n);
    for (int i = 0; i < n; i++) start[i] = get(y[i], 0), slope0[i] = get(f[i], 0);
    auto remainder = [&](const Array<double> &shift, const T *g, Array<double> &out) {
      for (int i = 0; i < n; i++) out[i] = get(g[i], 0) - slope0[i];
      for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) out[i] -= matrix[size_t(j) * n + i] * shift[j];
    };
    auto weigh = [&](auto of) { for (int q = 0; q < n; q++) weights[q] = of(h * values[q]); };
    weigh([&](double z) { return 0.75 * h * phi(1, 0.75 * z); });
    apply(slope0, move);
    for (int i = 0; i < n; i++) point[i] = all<T>(start[i] + move[i]);
    for (int i = 0; i < n; i++) move[i] = get(point[i], 0) - start[i];
    net.slope(point.data(), slope.data(), false);
    remainder(move, slope.data(), inside);
    weigh([&](double z) { return h * phi(1, z); });
    apply(slope0, move);
    weigh([&](double z) { return 32.0 / 9.0 * h * phi(3, z); });
    apply(inside, extra);
    for (int i = 0; i < n; i++) next[i] = all<T>(start[i] + move[i] + extra[i]);
    for (int i = 0; i < n; i++) move[i] = get(next[i], 0) - start[i];
    value = net.slope(next.data(), slope.data(), true);
    remainder(move, slope.data(), ending);
    for (int i = 0; i < n; i++) bend[i] = 4 * (ending[i] - 16.0 / 9.0 * inside[i]);
    weigh([&](double z) { return h * (6 * phi(4, z) - 1.5 * phi(3, z)); });
    apply(bend, ending);
    weigh([&](double z) { return h * phi(1, z); });
    apply(bend, extra);
    // Where the linear part vanishes the leading error does too; a hundredth of the remainder stands in for it.
    for (int i = 0; i < n; i++) error[i] = all<T>(std::fabs(ending[i]) + 0.01 * std::fabs(extra[i]));
    for (int lane = 0; lane < L; lane++) evaluations[lane] = 2 * n + 3;
    return !stopped();
  }
};

}  // namespace engine
