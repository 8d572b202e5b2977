// Losses of a matrix: squared distance, regression, completion.
#pragma once
#include "products.h"
#include "spec.h"

namespace engine {

template <class T> struct Loss {
  const Spec &spec;
  const Blas &blas;
  int rows, columns, area;
  Array<T> target, mask, sxx, solution, gap, bent;
  T offset, l2;
  bool penalised;
  Array<double> room;

  Loss(const Spec &s, const Blas &b, int r, int c)
      : spec(s), blas(b), rows(r), columns(c), area(r * c), offset(T{}), l2(T{}), penalised(false) {
    gap.resize(area), bent.resize(area);
    target.resize(area);
    if (spec.loss == 2) mask.resize(area);
    if (spec.loss == 1) sxx.resize(columns * columns), solution.resize(area);
  }

  // Takes the numbers of a member's loss into a lane, or into all of them.
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
    const double constant = spec.offset[member * spec.offset_step], penalty = spec.l2[member * spec.l2_step];
    if (lane < 0)
      offset = all<T>(constant), l2 = all<T>(penalty);
    else
      put(offset, lane, constant), put(l2, lane, penalty);
    penalised = penalised || penalty != 0;
  }

  bool shared() const {
    return !(spec.target_step || spec.mask_step || spec.sxx_step || spec.solution_step || spec.offset_step ||
             spec.l2_step);
  }

  // Minus the derivative at the matrix p; the loss itself, without the penalty, if wanted.
  T pull(const T *p, T *out, bool wanted) {
    T sum{};
    if (spec.loss == 1) {
      multiply(blas, room, rows, columns, columns, p, columns, 1, sxx.data(), columns, 1, out);
      for (int i = 0; i < area; i++) out[i] = target[i] - out[i];
      if (!wanted) return sum;
      for (int i = 0; i < area; i++) gap[i] = p[i] - solution[i];
      multiply(blas, room, rows, columns, columns, gap.data(), columns, 1, sxx.data(), columns, 1, bent.data());
      for (int i = 0; i < area; i++) sum += gap[i] * bent[i];
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

  // Derivative of `pull` along p.
  void bend(const T *p, T *out) {
    if (spec.loss == 1) {
      multiply(blas, room, rows, columns, columns, p, columns, 1, sxx.data(), columns, 1, out);
      for (int i = 0; i < area; i++) out[i] = -out[i];
    } else
      for (int i = 0; i < area; i++) out[i] = spec.loss == 2 ? -mask[i] * p[i] : -p[i];
  }

  // Adds what the penalty on `size` weights contributes to a slope; returns its share of the loss.
  T penalise(int size, const T *y, T *f) const {
    T sum{};
    if (!penalised) return sum;
    for (int i = 0; i < size; i++) f[i] -= l2 * y[i], sum += y[i] * y[i];
    return 0.5 * l2 * sum;
  }

  // The same for the derivative of the slope along v.
  void penalise_along(int size, const T *v, T *out) const {
    if (penalised)
      for (int i = 0; i < size; i++) out[i] -= l2 * v[i];
  }
};

}  // namespace engine
