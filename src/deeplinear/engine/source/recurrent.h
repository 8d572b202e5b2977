// Linear recurrent networks s' = A s + B x, y = C s, read through the first `length` entries C A^j B of their impulse
// response, side by side in one matrix (outputs x (length inputs)). Weights: B, then what stands for A, then C.
#pragma once
#include "models.h"

namespace engine {

enum Form { DEEP, GENERAL, SYMMETRIC, UPPER, DIAGONAL, TIED };

template <class T> struct Recurrent : Model<T> {
  using Model<T>::begin;
  using Model<T>::columns;
  const int form, d, length, inputs, outputs;
  const bool diagonal;
  // Blocks of right and left are (A^j B)^T and C A^j; of a diagonal network right holds the powers of A, left is C.
  struct Powers {
    Array<T> transition, right, left;
  };
  Powers at, along;               // at the weights, and their derivative
  Array<T> output, output_along;  // C
  Array<T> product, moved, back, back_kept, turned, turned_kept, half, inner, sums, slopes, bends, pairs, entries;

  Recurrent(const Spec &s, const Blas &b)
      : Model<T>(s, b), form(s.form), d(s.widths[0]), length(s.widths[1]), inputs(s.widths[2]), outputs(s.widths[3]),
        diagonal(form == DIAGONAL || form == TIED) {
    this->rows = outputs, columns = length * inputs;
    const int inside = diagonal ? d : form == UPPER ? d * (d + 1) / 2 : d * d;
    begin = {0, d * inputs, d * inputs + inside};
    if (form != TIED) begin.push_back(begin.back() + outputs * d);
    for (Powers *p : {&at, &along}) {
      p->transition.resize(diagonal ? d : d * d);
      p->right.resize(length * d * (diagonal ? 1 : inputs));
      if (!diagonal) p->left.resize(length * d * outputs);
    }
    for (auto *c : {&output, &output_along}) c->resize(outputs * d);
    for (auto *g : {&product, &moved, &back, &back_kept, &turned, &turned_kept}) g->resize(outputs * columns);
    if (diagonal) {
      for (auto *one : {&sums, &slopes, &bends}) one->resize(outputs * inputs * d);
      pairs.resize(std::max(d, length) + 2), entries.resize(length);
    } else
      half.resize(length * outputs * d), inner.resize(d * d);
  }

  // The transition matrix (or its diagonal) and C that weights, or a direction, stand for.
  void unpack(const T *y, Powers &p, Array<T> &c) const {
    const T *from = y + begin[1];
    T *to = p.transition.data();
    if (form == GENERAL || diagonal) std::copy(from, y + begin[2], to);
    if (form == SYMMETRIC)
      for (int i = 0; i < d; i++)
        for (int j = 0; j < d; j++) to[i * d + j] = (from[i * d + j] + from[j * d + i]) * 0.5;
    if (form == UPPER)
      for (int i = 0; i < d; i++)
        for (int j = i; j < d; j++) to[i * d + j] = to[j * d + i] = *from++;
    if (form == TIED)
      for (int o = 0; o < outputs; o++)
        for (int q = 0; q < d; q++) c[o * d + q] = y[q * inputs + o];
    else
      std::copy(y + begin[2], y + begin[3], c.begin());
  }

  void start_right(const T *y, Array<T> &right) const {
    for (int q = 0; q < d; q++)
      for (int i = 0; i < inputs; i++) right[i * d + q] = y[q * inputs + i];
  }

  // Adds A from[right] and from[left] A to the next blocks, or puts them there. Where A is symmetric both are one
  // product, so that networks with B = C^T stay so.
  void step(const T *a, const T *right, const T *left, T *to_right, T *to_left, bool add = false) {
    if constexpr (lanes_of<T> == 1)
      if (inputs == 1 && outputs == 1) {
        if (!add) std::fill(to_right, to_right + d, 0.0), std::fill(to_left, to_left + d, 0.0);
        if (form == GENERAL) return both_sides<false>(d, a, right, left, to_right, to_left);
        return both_sides<true>(d, a, right, left, to_right, to_left);
      }
    const bool general = form == GENERAL;
    this->times(inputs, d, d, right, d, 1, a, general ? 1 : d, general ? d : 1, to_right, add);
    this->times(outputs, d, d, left, d, 1, a, d, 1, to_left, add);
  }

  const T *forward(const T *y) override {
    unpack(y, at, output);
    const T *a = at.transition.data();
    if (diagonal) {
      for (int q = 0; q < d; q++) at.right[q] = all<T>(1.0);
      for (int j = 1; j < length; j++)
        for (int q = 0; q < d; q++) at.right[j * d + q] = at.right[(j - 1) * d + q] * a[q];
      sum_up(y, output.data(), at.right.data(), product.data(), false);
      return product.data();
    }
    start_right(y, at.right);
    std::copy(output.begin(), output.end(), at.left.begin());
    const int wide = inputs * d, high = outputs * d;
    for (int j = 1; j < length; j++) {
      step(a, &at.right[(j - 1) * wide], &at.left[(j - 1) * high], &at.right[j * wide], &at.left[j * high]);
    }
    this->times(outputs, d, columns, output.data(), d, 1, at.right.data(), 1, d, product.data());
    return product.data();
  }

  // Of a diagonal network: sum over q of C[o, q] powers[j, q] B[q, i].
  void sum_up(const T *b, const T *c, const T *powers, T *out, bool add) {
    for (int o = 0; o < outputs; o++)
      for (int i = 0; i < inputs; i++) {
        for (int q = 0; q < d; q++) pairs[q] = c[o * d + q] * b[q * inputs + i];
        this->times(1, d, length, pairs.data(), d, 1, powers, 1, d, entries.data());
        for (int j = 0; j < length; j++) {
          T &to = out[o * columns + j * inputs + i];
          to = add ? to + entries[j] : entries[j];
        }
      }
  }

  T *cotangent() override { return back.data(); }
  T *kept_cotangent() override { return back_kept.data(); }
  void backward(const T *y, T *f) override { pull(y, back.data(), turned.data(), f); }
  void kept_backward(const T *y, T *f) override { pull(y, back_kept.data(), turned_kept.data(), f); }

  // With entry j of g at turned + j outputs inputs.
  void turn(const T *g, T *to) const {
    for (int o = 0; o < outputs; o++)
      for (int j = 0; j < length; j++)
        for (int i = 0; i < inputs; i++) to[(j * outputs + o) * inputs + i] = g[o * columns + j * inputs + i];
  }

  void pull(const T *y, const T *g, T *turned_, T *f) {
    if (diagonal) return pull_diagonal(y, g, f);
    turn(g, turned_);
    if (inputs == 1 && outputs == 1)  // one product for both maps, as in `step`
      this->times(1, length, d, g, columns, 1, at.left.data(), d, 1, f);
    else
      this->times(d, length * outputs, inputs, at.left.data(), 1, d, turned_, inputs, 1, f);
    this->times(outputs, columns, d, g, columns, 1, at.right.data(), d, 1, f + begin[2]);
    hankel(g, at.right, false);
    this->times(d, length * outputs, d, at.left.data(), 1, d, half.data(), d, 1, inner.data());
    fold(f);
  }

  // half[j] = sum over s of g[j + s + 1] (A^s B)^T.
  void hankel(const T *g, const Array<T> &right, bool add) {
    for (int j = 0; j + 1 < length; j++)
      this->times(outputs, (length - 1 - j) * inputs, d, g + (j + 1) * inputs, columns, 1, right.data(), d, 1,
                  &half[j * outputs * d], add);
    std::fill(half.end() - outputs * d, half.end(), T{});
  }

  // The slope of what stands for A from that of A.
  void fold(T *f) const {
    T *to = f + begin[1];
    const T *m = inner.data();
    if (form == GENERAL) std::copy(inner.begin(), inner.end(), to);
    if (form == SYMMETRIC)
      for (int i = 0; i < d; i++)
        for (int j = 0; j < d; j++) to[i * d + j] = (m[i * d + j] + m[j * d + i]) * 0.5;
    if (form == UPPER)
      for (int i = 0; i < d; i++)
        for (int j = i; j < d; j++) *to++ = i == j ? m[i * d + i] : m[i * d + j] + m[j * d + i];
  }

  // sums = sum_j g_j a^j, slopes its derivative in a, bends the second.
  void series(const T *g, bool twice) {
    for (int o = 0; o < outputs; o++)
      for (int i = 0; i < inputs; i++) {
        T *to = &sums[(o * inputs + i) * d];
        for (int j = 0; j < length; j++) pairs[j] = g[o * columns + j * inputs + i];
        add_up(to, 0);
        for (int j = 0; j < length; j++) pairs[j] = pairs[j] * double(j);
        add_up(&slopes[to - sums.data()], 1);
        if (!twice) continue;
        for (int j = 0; j < length; j++) pairs[j] = pairs[j] * double(j - 1);
        add_up(&bends[to - sums.data()], 2);
      }
  }

  // Sum over j of pairs[j] a^(j - down).
  void add_up(T *to, int down) {
    const int terms = std::max(length - down, 0);
    this->times(1, terms, d, pairs.data() + down, terms, 1, at.right.data(), d, 1, to);
  }

  // One sum for both maps, so that those that are transposes of each other move alike to the last digit.
  void pull_diagonal(const T *b, const T *g, T *f) {
    series(g, false);
    std::fill(f, f + begin.back(), T{});
    spread(b, output.data(), sums.data(), f);
    for (int o = 0; o < outputs; o++)
      for (int i = 0; i < inputs; i++)
        for (int q = 0; q < d; q++)
          f[begin[1] + q] += output[o * d + q] * slopes[(o * inputs + i) * d + q] * b[q * inputs + i];
  }

  // Adds C^T s to the slope of B and s B^T to that of C.
  void spread(const T *b, const T *c, const T *s, T *f) const {
    for (int o = 0; o < outputs; o++)
      for (int i = 0; i < inputs; i++)
        for (int q = 0; q < d; q++) {
          const T x = s[(o * inputs + i) * d + q];
          f[q * inputs + i] += c[o * d + q] * x;
          f[form == TIED ? q * inputs + o : begin[2] + o * d + q] += x * b[q * inputs + i];
        }
  }

  const T *tangent(const T *y, const T *v) override {
    unpack(v, along, output_along);
    const T *a = at.transition.data(), *da = along.transition.data();
    if (diagonal) {
      for (int q = 0; q < d; q++) along.right[q] = T{};
      for (int j = 1; j < length; j++)
        for (int q = 0; q < d; q++) along.right[j * d + q] = double(j) * at.right[(j - 1) * d + q] * da[q];
      sum_up(y, output_along.data(), at.right.data(), moved.data(), false);
      sum_up(v, output.data(), at.right.data(), moved.data(), true);
      sum_up(y, output.data(), along.right.data(), moved.data(), true);
      return moved.data();
    }
    start_right(v, along.right);
    std::copy(output_along.begin(), output_along.end(), along.left.begin());
    const int wide = inputs * d, high = outputs * d;
    for (int j = 1; j < length; j++) {
      T *right = &along.right[j * wide], *left = &along.left[j * high];
      step(a, right - wide, left - high, right, left);
      step(da, &at.right[(j - 1) * wide], &at.left[(j - 1) * high], right, left, true);
    }
    this->times(outputs, d, columns, output_along.data(), d, 1, at.right.data(), 1, d, moved.data());
    this->times(outputs, d, columns, output.data(), d, 1, along.right.data(), 1, d, moved.data(), true);
    return moved.data();
  }

  void backward_tangent(const T *y, const T *v, T *out) override {
    if (diagonal) return bend_diagonal(y, v, out);
    const int all_ = length * outputs;
    turn(back.data(), turned.data());
    this->times(d, all_, inputs, along.left.data(), 1, d, turned_kept.data(), inputs, 1, out);
    this->times(d, all_, inputs, at.left.data(), 1, d, turned.data(), inputs, 1, out, true);
    this->times(outputs, columns, d, back.data(), columns, 1, at.right.data(), d, 1, out + begin[2]);
    this->times(outputs, columns, d, back_kept.data(), columns, 1, along.right.data(), d, 1, out + begin[2], true);
    hankel(back.data(), at.right, false);
    hankel(back_kept.data(), along.right, true);
    this->times(d, all_, d, at.left.data(), 1, d, half.data(), d, 1, inner.data());
    hankel(back_kept.data(), at.right, false);
    this->times(d, all_, d, along.left.data(), 1, d, half.data(), d, 1, inner.data(), true);
    fold(out);
  }

  void bend_diagonal(const T *b, const T *v, T *out) {
    const T *db = v, *da = along.transition.data();
    std::fill(out, out + begin.back(), T{});
    series(back_kept.data(), true);  // of the gradient: C and B move
    auto inside = [&](const T *c, const T *s, const T *w, const T *weight) {
      for (int o = 0; o < outputs; o++)
        for (int i = 0; i < inputs; i++)
          for (int q = 0; q < d; q++) {
            const T x = c[o * d + q] * s[(o * inputs + i) * d + q] * w[q * inputs + i];
            out[begin[1] + q] += weight ? x * weight[q] : x;
          }
    };
    spread(db, output_along.data(), sums.data(), out);
    inside(output_along.data(), slopes.data(), b, nullptr);
    inside(output.data(), slopes.data(), db, nullptr);
    inside(output.data(), bends.data(), b, da);
    for (int k = 0; k < outputs * inputs; k++)
      for (int q = 0; q < d; q++) slopes[k * d + q] = slopes[k * d + q] * da[q];
    spread(b, output.data(), slopes.data(), out);
    series(back.data(), false);  // and the gradient itself
    spread(b, output.data(), sums.data(), out);
    inside(output.data(), slopes.data(), b, nullptr);
  }
};

}  // namespace engine
