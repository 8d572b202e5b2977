// A deep linear network: slope of the flow, loss, and products with the Jacobian of the flow.
#pragma once
#include "loss.h"

namespace engine {

template <class T> struct Deep {
  const Blas &blas;
  Loss<T> &loss;
  int depth, columns;
  const int32_t *width;
  const std::vector<int> &begin;  // where each layer begins among the weights
  std::vector<int> above;         // where each prefix product W_l ... W_1, l >= 2, begins in `prefix`
  Array<T> prefix, moved;         // prefix products, and their derivatives
  Array<T> backs, turned, other;  // backward products of all layers, and two that move through the layers
  Array<double> room;

  Deep(const Spec &spec, const Blas &b, Loss<T> &l, const std::vector<int> &places)
      : blas(b), loss(l), depth(spec.depth), columns(spec.widths[0]), width(spec.widths), begin(places) {
    int total = 0, big = 0;
    for (int l = 0; l < depth; l++) {
      above.push_back(total);
      total += width[l + 1] * width[0];
      big = std::max(big, width[l + 1] * width[0]);
    }
    prefix.resize(total), moved.resize(total), backs.resize(total);
    turned.resize(big), other.resize(big);
  }

  // W_l ... W_1.
  const T *product(const T *y, int l) const { return l == 1 ? y : &prefix[above[l - 1]]; }

  void forward(const T *y) {
    for (int l = 2; l <= depth; l++)
      multiply(blas, room, width[l], width[l - 1], columns, y + begin[l - 1], width[l - 1], 1, product(y, l - 1),
               columns, 1, &prefix[above[l - 1]]);
  }

  // The slope f of the flow at y; returns the loss if it is wanted.
  T slope(const T *y, T *f, bool wanted) {
    forward(y);
    T *back = turned.data(), *next = other.data();
    T value = loss.pull(product(y, depth), depth == 1 ? f : back, wanted);
    for (int l = depth; l > 1; l--) {
      multiply(blas, room, width[l], columns, width[l - 1], back, columns, 1, product(y, l - 1), 1, columns,
               f + begin[l - 1]);
      T *to = l == 2 ? f : next;
      multiply(blas, room, width[l - 1], width[l], columns, y + begin[l - 1], 1, width[l - 1], back, columns, 1, to);
      std::swap(back, next);
    }
    return value;
  }

  // The slope at y, kept so that `jacobian` can follow; returns the loss.
  T linearize(const T *y, T *f) {
    forward(y);
    T value = loss.pull(product(y, depth), &backs[above[depth - 1]], true);
    for (int l = depth; l > 1; l--) {
      T *back = &backs[above[l - 1]];
      multiply(blas, room, width[l], columns, width[l - 1], back, columns, 1, product(y, l - 1), 1, columns,
               f + begin[l - 1]);
      multiply(blas, room, width[l - 1], width[l], columns, y + begin[l - 1], 1, width[l - 1], back, columns, 1,
               &backs[above[l - 2]]);
    }
    for (int i = 0; i < begin[1]; i++) f[i] = backs[i];
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
    T *back = turned.data(), *next = other.data();
    loss.bend(tangent(depth), back);
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
  }
};

}  // namespace engine
