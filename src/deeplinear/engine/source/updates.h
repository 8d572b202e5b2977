// Discrete updates: new weights and moments from the slope, which is minus the gradient.
#pragma once
#include <cmath>
#include "lanes.h"
#include "spec.h"

namespace engine {

enum Kind { FLOW, DESCENT, MOMENTUM, ADAM, RMSPROP, ADAGRAD };

template <class T> inline T root(const T &x) {
  T out;
  for (int lane = 0; lane < lanes_of<T>; lane++) put(out, lane, std::sqrt(get(x, lane)));
  return out;
}

// Numbers of the networks side by side: rate, two decays, what is added to roots; and how many steps were taken.
template <class T> struct Numbers {
  T rate, one, two, eps;
  int64_t taken[lanes_of<T>];
};

// b^n, which is asked for again and again with the same numbers, and is rounding beside 1 in the end.
struct Power {
  double base = 0, value = 1;
  int64_t exponent = 0;
  double of(double b, int64_t n) {
    if (b == base && n == exponent) return value;
    base = b, exponent = n;
    return value = double(n) * std::log(b) < -40 ? 0.0 : std::pow(b, double(n));
  }
};

template <class T> struct Rule {
  Power first, second;

  // f: slope; y, m, v: weights and the two moments; the others: after the step.
  void move(const Update &update, const Numbers<T> &c, int n, const T *f, const T *y, const T *m, const T *v, T *to_y,
            T *to_m, T *to_v) {
    constexpr int L = lanes_of<T>;
    const T one = all<T>(1.0);
    switch (update.kind) {
      case DESCENT:
        for (int i = 0; i < n; i++) to_y[i] = y[i] + c.rate * f[i];
        return;
      case MOMENTUM: {  // `two` is the dampening, which the first step does not know
        T weight = one - c.two;
        for (int l = 0; l < L; l++)
          if (c.taken[l] == 0) put(weight, l, 1.0);
        for (int i = 0; i < n; i++) {
          to_m[i] = c.one * m[i] - weight * f[i];
          to_y[i] = y[i] - c.rate * (update.nesterov ? c.one * to_m[i] - f[i] : to_m[i]);
        }
        return;
      }
      case ADAM: {
        T scale, stretch;
        for (int l = 0; l < L; l++) {
          put(scale, l, get(c.rate, l) / (1 - first.of(get(c.one, l), c.taken[l] + 1)));
          put(stretch, l, 1 / (1 - second.of(get(c.two, l), c.taken[l] + 1)));
        }
        for (int i = 0; i < n; i++) {
          to_m[i] = c.one * m[i] - (one - c.one) * f[i];
          to_v[i] = c.two * v[i] + (one - c.two) * (f[i] * f[i]);
          to_y[i] = y[i] - scale * to_m[i] / (root(to_v[i] * stretch) + c.eps);
        }
        return;
      }
      case RMSPROP:
      case ADAGRAD: {
        const T keep = update.kind == RMSPROP ? c.one : one, take = update.kind == RMSPROP ? one - c.one : one;
        for (int i = 0; i < n; i++) {
          to_v[i] = keep * v[i] + take * (f[i] * f[i]);
          to_y[i] = y[i] + c.rate * f[i] / (root(to_v[i]) + c.eps);
        }
        return;
      }
    }
  }
};

}  // namespace engine
