// Losses of the product, one of each lane's network: value, gradient, curvature.
#pragma once
#include "products.h"
#include "spec.h"

namespace engine {

template <class T> struct Loss {
  const Spec &spec;
  const Blas &blas;
  int rows, columns, area;
  Array<T> target, mask, sxx, solution, gap, other;
  T offset;
  Array<double> room;

  Loss(const Spec &s, const Blas &b, int high, int broad) : spec(s), blas(b), rows(high), columns(broad), area(high * broad) {
    target.resize(area);
    if (spec.loss == 2) mask.resize(area);
    if (spec.loss == 1) sxx.resize(columns * columns), solution.resize(area), gap.resize(area), other.resize(area);
    offset = T{};
  }

  // Takes a member's numbers into a lane, or into all of them.
  void take(int64_t member, int lane) {
    auto copy = [&](Array<T> &to, const double *from, int64_t step) {
      if (!from) return;
      from += member * step;
      for (size_t i = 0; i < to.size(); i++) lane < 0 ? (void)(to[i] = all<T>(from[i])) : put(to[i], lane, from[i]);
    };
    copy(target, spec.target, spec.target_step);
    copy(mask, spec.mask, spec.mask_step);
    copy(sxx, spec.sxx, spec.sxx_step);
    copy(solution, spec.solution, spec.solution_step);
    const double constant = spec.offset[member * spec.offset_step];
    lane < 0 ? (void)(offset = all<T>(constant)) : put(offset, lane, constant);
  }

  bool shared() const {
    return !(spec.target_step || spec.mask_step || spec.sxx_step || spec.solution_step || spec.offset_step);
  }

  // Minus the gradient at a product; the value if it is wanted.
  T pull(const T *p, T *out, bool wanted) {
    T sum{};
    if (spec.loss == 1) {
      multiply(blas, room, rows, columns, columns, p, columns, 1, sxx.data(), columns, 1, out);
      for (int i = 0; i < area; i++) out[i] = target[i] - out[i];
      if (!wanted) return sum;
      for (int i = 0; i < area; i++) gap[i] = p[i] - solution[i];
      multiply(blas, room, rows, columns, columns, gap.data(), columns, 1, sxx.data(), columns, 1, other.data());
      for (int i = 0; i < area; i++) sum += gap[i] * other[i];
      return 0.5 * sum + offset;
    }
    if (spec.loss == 2)
      for (int i = 0; i < area; i++) out[i] = mask[i] * (target[i] - p[i]);
    else
      for (int i = 0; i < area; i++) out[i] = target[i] - p[i];
    if (wanted)
      for (int i = 0; i < area; i++) sum += out[i] * out[i];
    return 0.5 * sum + offset;
  }

  // Minus the curvature along the derivative of a product.
  void bend(const T *p, T *out) {
    if (spec.loss == 1) {
      multiply(blas, room, rows, columns, columns, p, columns, 1, sxx.data(), columns, 1, out);
      for (int i = 0; i < area; i++) out[i] = -out[i];
    } else
      for (int i = 0; i < area; i++) out[i] = spec.loss == 2 ? -mask[i] * p[i] : -p[i];
  }
};

}  // namespace engine
