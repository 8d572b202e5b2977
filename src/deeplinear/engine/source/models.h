// What a network must offer, and deep linear networks.
#pragma once
#include "products.h"
#include "spec.h"

namespace engine {

// A network by its product: its derivatives, forwards and backwards. `cotangent` is where the loss puts minus its
// gradient at the product; `backward` turns it into the slope and may overwrite it.
template <class T> struct Model {
  const Spec &spec;
  const Blas &blas;
  std::vector<int> begin;  // where each array of weights begins, and where the last one ends
  int rows = 0, columns = 0;
  Array<double> room;

  Model(const Spec &s, const Blas &b) : spec(s), blas(b) {}
  virtual ~Model() {}
  virtual const T *forward(const T *y) = 0;
  virtual T *cotangent() = 0;
  virtual void backward(const T *y, T *f) = 0;
  // The same with all that a derivative along v needs kept: that of the product, and that of the slope, once the loss
  // has put its part into `cotangent`.
  virtual T *kept_cotangent() = 0;
  virtual void kept_backward(const T *y, T *f) = 0;
  virtual const T *tangent(const T *y, const T *v) = 0;
  virtual void backward_tangent(const T *y, const T *v, T *out) = 0;

 protected:
  void times(int m, int k, int n, const T *a, int ra, int ca, const T *b, int rb, int cb, T *c, bool add = false) {
    multiply(blas, room, m, k, n, a, ra, ca, b, rb, cb, c, add);
  }
};

// W_depth ... W_1.
template <class T> struct Layers : Model<T> {
  using Model<T>::begin;
  using Model<T>::columns;
  int depth;
  const int32_t *width;
  std::vector<int> above;         // where each prefix product W_l ... W_1, l >= 2, begins in `prefix`
  Array<T> prefix, moved;         // prefix products, and their derivatives
  Array<T> backs, turned, other;  // backward products of all layers, and two that move through the layers

  Layers(const Spec &s, const Blas &b) : Model<T>(s, b), depth(s.depth), width(s.widths) {
    int total = 0, big = 0, size = 0;
    for (int l = 0; l < depth; l++) {
      begin.push_back(size);
      size += width[l] * width[l + 1];
      above.push_back(total);
      total += width[l + 1] * width[0];
      big = std::max(big, width[l + 1] * width[0]);
    }
    begin.push_back(size);
    this->rows = width[depth], columns = width[0];
    prefix.resize(total), moved.resize(total), backs.resize(total);
    turned.resize(big), other.resize(big);
  }

  const T *product(const T *y, int l) const { return l == 1 ? y : &prefix[above[l - 1]]; }

  const T *forward(const T *y) override {
    for (int l = 2; l <= depth; l++)
      this->times(width[l], width[l - 1], columns, y + begin[l - 1], width[l - 1], 1, product(y, l - 1), columns, 1,
                  &prefix[above[l - 1]]);
    return product(y, depth);
  }

  T *cotangent() override { return turned.data(); }

  void backward(const T *y, T *f) override {
    T *back = turned.data(), *next = other.data();
    if (depth == 1) std::copy(back, back + begin[1], f);
    for (int l = depth; l > 1; l--) {
      this->times(width[l], columns, width[l - 1], back, columns, 1, product(y, l - 1), 1, columns, f + begin[l - 1]);
      T *to = l == 2 ? f : next;
      this->times(width[l - 1], width[l], columns, y + begin[l - 1], 1, width[l - 1], back, columns, 1, to);
      std::swap(back, next);
    }
  }

  T *kept_cotangent() override { return &backs[above[depth - 1]]; }

  void kept_backward(const T *y, T *f) override {
    for (int l = depth; l > 1; l--) {
      T *back = &backs[above[l - 1]];
      this->times(width[l], columns, width[l - 1], back, columns, 1, product(y, l - 1), 1, columns, f + begin[l - 1]);
      this->times(width[l - 1], width[l], columns, y + begin[l - 1], 1, width[l - 1], back, columns, 1,
                  &backs[above[l - 2]]);
    }
    std::copy(backs.begin(), backs.begin() + begin[1], f);
  }

  const T *moved_to(const T *v, int l) const { return l == 1 ? v : &moved[above[l - 1]]; }

  const T *tangent(const T *y, const T *v) override {
    for (int l = 2; l <= depth; l++) {
      T *to = &moved[above[l - 1]];
      this->times(width[l], width[l - 1], columns, v + begin[l - 1], width[l - 1], 1, product(y, l - 1), columns, 1, to);
      this->times(width[l], width[l - 1], columns, y + begin[l - 1], width[l - 1], 1, moved_to(v, l - 1), columns, 1, to,
                  true);
    }
    return moved_to(v, depth);
  }

  void backward_tangent(const T *y, const T *v, T *out) override {
    T *back = turned.data(), *next = other.data();
    for (int l = depth; l > 1; l--) {
      const T *kept = &backs[above[l - 1]];
      T *to = out + begin[l - 1];
      this->times(width[l], columns, width[l - 1], back, columns, 1, product(y, l - 1), 1, columns, to);
      this->times(width[l], columns, width[l - 1], kept, columns, 1, moved_to(v, l - 1), 1, columns, to, true);
      this->times(width[l - 1], width[l], columns, y + begin[l - 1], 1, width[l - 1], back, columns, 1, next);
      this->times(width[l - 1], width[l], columns, v + begin[l - 1], 1, width[l - 1], kept, columns, 1, next, true);
      std::swap(back, next);
    }
    std::copy(back, back + begin[1], out);
  }
};

}  // namespace engine
