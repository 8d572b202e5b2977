// A deep linear network and its loss: slope of the flow, loss, and products with the Jacobian of the flow.
#pragma once
#include "products.h"
#include "spec.h"

namespace engine {

template <class T> struct Network {
  const Spec &spec;
  const Blas &blas;
  int depth, size, rows, columns, area;
  const int32_t *width;
  std::vector<int> begin;        // where each layer begins among the weights
  std::vector<int> above;        // where each prefix product W_l ... W_1, l >= 2, begins in `prefix`
  Array<T> prefix, moved;        // prefix products, and their derivatives
  Array<T> backs, turned, other; // backward products of all layers, and two that move through the layers
  Array<T> target, mask, sxx, solution, gap;
  T offset, l2;
  bool penalised;
  Array<double> room;

  Network(const Spec &s, const Blas &b) : spec(s), blas(b), depth(s.depth), size(0), width(s.widths), penalised(false) {
    int total = 0, big = 0;
    for (int l = 0; l < depth; l++) {
      begin.push_back(size);
      size += width[l] * width[l + 1];
      above.push_back(total);
      total += width[l + 1] * width[0];
      big = std::max(big, width[l + 1] * width[0]);
    }
    begin.push_back(size);
    rows = width[depth], columns = width[0], area = rows * columns;
    prefix.resize(total), moved.resize(total), backs.resize(total);
    turned.resize(big), other.resize(big), gap.resize(area);
    target.resize(area);
    if (spec.loss == 2) mask.resize(area);
    if (spec.loss == 1) sxx.resize(columns * columns), solution.resize(area);
    offset = T{}, l2 = T{};
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

  // W_l ... W_1.
  const T *product(const T *y, int l) const { return l == 1 ? y : &prefix[above[l - 1]]; }

  void forward(const T *y) {
    for (int l = 2; l <= depth; l++)
      multiply(blas, room, width[l], width[l - 1], columns, y + begin[l - 1], width[l - 1], 1, product(y, l - 1),
               columns, 1, &prefix[above[l - 1]]);
  }

  // Minus the derivative of the loss with respect to the product; the loss itself, without the penalty, if wanted.
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

  // The slope f of the flow at y; returns the loss if it is wanted.
  T slope(const T *y, T *f, bool wanted) {
    forward(y);
    T *back = turned.data(), *next = other.data();
    T value = pull(product(y, depth), depth == 1 ? f : back, wanted);
    for (int l = depth; l > 1; l--) {
      multiply(blas, room, width[l], columns, width[l - 1], back, columns, 1, product(y, l - 1), 1, columns,
               f + begin[l - 1]);
      T *to = l == 2 ? f : next;
      multiply(blas, room, width[l - 1], width[l], columns, y + begin[l - 1], 1, width[l - 1], back, columns, 1, to);
      std::swap(back, next);
    }
    if (penalised) {
      T sum{};
      for (int i = 0; i < size; i++) f[i] -= l2 * y[i], sum += y[i] * y[i];
      value += 0.5 * l2 * sum;
    }
    return value;
  }

  // The slope at y, kept so that `jacobian` can follow; returns the loss.
  T linearize(const T *y, T *f) {
    forward(y);
    T *last = &backs[above[depth - 1]];
    T value = pull(product(y, depth), last, true);
    for (int l = depth; l > 1; l--) {
      T *back = &backs[above[l - 1]];
      multiply(blas, room, width[l], columns, width[l - 1], back, columns, 1, product(y, l - 1), 1, columns,
               f + begin[l - 1]);
      multiply(blas, room, width[l - 1], width[l], columns, y + begin[l - 1], 1, width[l - 1], back, columns, 1,
               &backs[above[l - 2]]);
    }
    for (int i = 0; i < begin[1]; i++) f[i] = backs[i];
    if (penalised) {
      T sum{};
      for (int i = 0; i < size; i++) f[i] -= l2 * y[i], sum += y[i] * y[i];
      value += 0.5 * l2 * sum;
    }
    return value;
  }

  // Derivative of the slope along v, where `linearize` was called.
  void jacobian(const T *y, const T *v, T *out) {
    auto tangent = [&](int l) -> const T * { return l == 1 ? v : &moved[above[l - 1]]; };
    for (int l = 2; l <= depth; l++) {
      T *to = &moved[above[l - 1]];
      multiply(blas, room, width[l], width[l - 1], columns, v + begin[l - 1], width[l - 1], 1, product(y, l - 1),
               columns, 1, to);
      multiply(blas, room, width[l], width[l - 1], columns, y + begin[l - 1], width[l - 1], 1, tangent(l - 1), columns,
               1, to, true);
    }
    const T *p = tangent(depth);
    T *back = turned.data(), *next = other.data();
    if (spec.loss == 1) {
      multiply(blas, room, rows, columns, columns, p, columns, 1, sxx.data(), columns, 1, back);
      for (int i = 0; i < area; i++) back[i] = -back[i];
    } else
      for (int i = 0; i < area; i++) back[i] = spec.loss == 2 ? -mask[i] * p[i] : -p[i];
    for (int l = depth; l > 1; l--) {
      const T *kept = &backs[above[l - 1]];
      multiply(blas, room, width[l], columns, width[l - 1], back, columns, 1, product(y, l - 1), 1, columns,
               out + begin[l - 1]);
      multiply(blas, room, width[l], columns, width[l - 1], kept, columns, 1, tangent(l - 1), 1, columns,
               out + begin[l - 1], true);
      multiply(blas, room, width[l - 1], width[l], columns, y + begin[l - 1], 1, width[l - 1], back, columns, 1, next);
      multiply(blas, room, width[l - 1], width[l], columns, v + begin[l - 1], 1, width[l - 1], kept, columns, 1, next,
               true);
      std::swap(back, next);
    }
    for (int i = 0; i < begin[1]; i++) out[i] = back[i];
    if (penalised)
      for (int i = 0; i < size; i++) out[i] -= l2 * v[i];
  }
};

}  // namespace engine
