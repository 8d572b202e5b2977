// The spectral radius of the Jacobian, by power iteration.
#pragma once
#include "steps.h"

namespace engine {

// Three iterations from the directions of the networks: bounds of their radii, and the new directions.
template <class T> const T *power_iteration(Steps<T> &s, double *bound) {
  constexpr int L = lanes_of<T>;
  const int n = s.n;
  T *v = s.a.data(), *w = s.b.data();
  s.net.linearize(s.y.data(), s.slope.data());
  for (int i = 0; i < n; i++) v[i] = s.direction[i];
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
  return v;
}

}  // namespace engine
