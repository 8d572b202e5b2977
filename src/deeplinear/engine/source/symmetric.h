// Eigenvalues and eigenvectors of a small symmetric matrix: Householder reflections to three diagonals, then implicit
// QL steps. As fast as LAPACK up to two hundred rows, and loading that takes longer than all decompositions of a run.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

namespace engine {

// On entry `a` holds the n x n matrix, on return its eigenvectors, one a row; false where the iteration does not end.
inline bool decompose(int n, double *a, double *values) {
  std::vector<double> side(n, 0.0), v(n), w(n), q(size_t(n) * n, 0.0);
  for (int i = 0; i < n; i++) q[size_t(i) * n + i] = 1;
  auto at = [&](int i, int j) -> double & { return a[size_t(i) * n + j]; };

  // Reflection k makes column k zero below its second diagonal; q gathers their product, a vector a row.
  for (int k = 0; k + 2 < n; k++) {
    double scale = 0, square = 0;
    for (int i = k + 1; i < n; i++) scale = std::fmax(scale, std::fabs(at(i, k)));
    bool reduced = true;
    for (int i = k + 2; i < n; i++) reduced = reduced && at(i, k) == 0;
    if (reduced) continue;
    for (int i = k + 1; i < n; i++) v[i] = at(i, k) / scale, square += v[i] * v[i];
    const double length = std::copysign(std::sqrt(square), v[k + 1]);
    v[k + 1] += length;
    const double factor = 1 / (length * v[k + 1]);  // I - factor v v^T
    double along = 0;
    for (int i = k + 1; i < n; i++) {
      w[i] = 0;
      for (int j = k + 1; j < n; j++) w[i] += at(i, j) * v[j];
      w[i] *= factor;
      along += w[i] * v[i];
    }
    for (int i = k + 1; i < n; i++) w[i] -= 0.5 * factor * along * v[i];
    for (int i = k + 1; i < n; i++)
      for (int j = k + 1; j < n; j++) at(i, j) -= v[i] * w[j] + w[i] * v[j];
    at(k + 1, k) = at(k, k + 1) = -scale * length;
    for (int i = k + 2; i < n; i++) at(i, k) = at(k, i) = 0;
    for (int j = 0; j < n; j++) w[j] = 0;
    for (int i = k + 1; i < n; i++)
      for (int j = 0; j < n; j++) w[j] += v[i] * q[size_t(i) * n + j];
    for (int i = k + 1; i < n; i++)
      for (int j = 0; j < n; j++) q[size_t(i) * n + j] -= factor * v[i] * w[j];
  }
  for (int i = 0; i < n; i++) values[i] = at(i, i);
  for (int i = 0; i + 1 < n; i++) side[i] = at(i + 1, i);

  // Rotations chase the second diagonal to zero, from the end that is being separated. What is rounding of the whole
  // matrix is zero: many eigenvalues may vanish.
  double norm = 0;
  for (int i = 0; i < n; i++) norm = std::fmax(norm, std::fabs(values[i]) + std::fabs(side[i]));
  for (int low = 0; low < n; low++)
    for (int round = 0;; round++) {
      int end = low;
      while (end + 1 < n && std::fabs(side[end]) > 1.1102230246251565e-16 * norm) end++;
      if (end == low) break;
      if (round == 60 || !std::isfinite(side[low])) return false;
      const double half = (values[low + 1] - values[low]) / (2 * side[low]);
      double g = values[end] - values[low] + side[low] / (half + std::copysign(std::hypot(half, 1.0), half));
      double sine = 1, cosine = 1, moved = 0;
      int i = end - 1;
      for (; i >= low; i--) {
        const double f = sine * side[i], b = cosine * side[i], r = std::hypot(f, g);
        side[i + 1] = r;
        if (r == 0) {  // separated by chance
          values[i + 1] -= moved;
          side[end] = 0;
          break;
        }
        sine = f / r, cosine = g / r;
        g = values[i + 1] - moved;
        const double t = (values[i] - g) * sine + 2 * cosine * b;
        moved = sine * t;
        values[i + 1] = g + moved;
        g = cosine * t - b;
        double *upper = &q[size_t(i + 1) * n], *lower = &q[size_t(i) * n];
        for (int j = 0; j < n; j++) {
          const double x = upper[j];
          upper[j] = sine * lower[j] + cosine * x;
          lower[j] = cosine * lower[j] - sine * x;
        }
      }
      if (i >= low) continue;
      values[low] -= moved;
      side[low] = g;
      side[end] = 0;
    }
  for (size_t i = 0; i < size_t(n) * n; i++) a[i] = q[i];
  return true;
}

}  // namespace engine
